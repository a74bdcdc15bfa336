//! Lost packets: while it lasts, the kernel drops one in ten of those to and from the given ports of loopback.

use std::process::Stdio;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A chain of its own, taken away when standard input ends, however that comes: nothing outlives a campaign. What it
/// prints at its end has a line for each rule, with the packets that it dropped.
const SCRIPT: &str = r#"
chain=assay-$$
trap '' INT TERM
end() { iptables -w -D INPUT -i lo -j "$chain"; iptables -w -F "$chain"; iptables -w -X "$chain"; } 2>/dev/null
trap end EXIT
set -e
iptables -w -N "$chain"
for port in "$@"; do
  for side in --dport --sport; do
    iptables -w -A "$chain" -p tcp "$side" "$port" -m statistic --mode random --probability 0.1 -j DROP
  done
done
iptables -w -I INPUT -i lo -j "$chain"
echo on
read -r _ || :
iptables -w -nvxL "$chain"
"#;

/// Packets are being lost until [`Loss::end`], or until this is dropped.
#[derive(Debug)]
pub struct Loss {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Loss {
    /// Begins to lose packets of `ports`.
    ///
    /// # Errors
    /// A machine that can't: it needs `iptables` and the right to change its rules.
    pub async fn begin(ports: &[u16]) -> std::io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "loss"]).args(ports.iter().map(u16::to_string));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let piped = || std::io::Error::other("no pipe");
        let input = child.stdin.take().ok_or_else(piped)?;
        let mut output = child.stdout.take().ok_or_else(piped)?;
        let mut on = [0; 3];
        if output.read_exact(&mut on).await.is_err() {
            let said = child.wait_with_output().await?;
            let why = String::from_utf8_lossy(&said.stderr);
            return Err(std::io::Error::other(format!(
                "iptables: {}",
                why.lines().next().unwrap_or("nothing said")
            )));
        }
        Ok(Self { child, input, output })
    }

    /// Ends it, and says how many packets were lost.
    ///
    /// # Errors
    /// Of the processes.
    pub async fn end(mut self) -> std::io::Result<u64> {
        self.input.write_all(b"\n").await?;
        let mut counted = String::new();
        self.output.read_to_string(&mut counted).await?;
        self.child.wait().await?;
        Ok(dropped(&counted))
    }
}

/// The packets that the rules of a chain dropped.
fn dropped(listing: &str) -> u64 {
    let of_rule = |line: &str| {
        let mut words = line.split_whitespace();
        let packets = words.next()?.parse::<u64>().ok()?;
        (words.nth(1) == Some("DROP")).then_some(packets)
    };
    listing.lines().filter_map(of_rule).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_what_the_rules_counted() {
        let listing = "Chain assay-7 (1 references)\n    pkts      bytes target     prot opt in     out     source\n      \
                       12      720 DROP       tcp  --  *      *       0.0.0.0/0\n       3      180 DROP       tcp  --\n";
        assert_eq!(dropped(listing), 15);
        assert_eq!(dropped("Chain assay-7 (0 references)\n"), 0);
    }

    /// Where the machine can, packets are lost while it lasts and none after it; where it can't, it says why.
    #[tokio::test(flavor = "multi_thread")]
    async fn packets_are_lost_while_it_lasts() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let loss = match Loss::begin(&[port]).await {
            Ok(loss) => loss,
            Err(why) => {
                assert!(!why.to_string().is_empty());
                return;
            }
        };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut reading, mut writing) = stream.split();
                    tokio::io::copy(&mut reading, &mut writing).await
                });
            }
        });
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut byte = [0];
        for _ in 0..60 {
            stream.write_all(b"x").await.unwrap();
            stream.read_exact(&mut byte).await.unwrap();
        }
        assert!(loss.end().await.unwrap() > 0, "of some 180 packets none was lost");
        let chains = Command::new("iptables").args(["-w", "-S"]).output().await.unwrap();
        assert!(!String::from_utf8_lossy(&chains.stdout).contains("assay-"), "the rules are still there");
    }
}

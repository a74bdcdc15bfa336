//! A refusal that a waiting client gets in place of `100 Continue` does not cost the next request.

use assay_server::{AuthMode, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn exchange(request: &str) -> Result<String, Box<dyn std::error::Error>> {
    let server = Server::builder().auth(AuthMode::None).bucket("data").start().await?;
    let host = server.endpoint().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&host).await?;
    stream.write_all(request.replace("HOST", &host).as_bytes()).await?;
    let mut answer = vec![0; 64 * 1024];
    let length = stream.read(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer[..length]).to_ascii_lowercase())
}

#[tokio::test]
async fn a_refusal_before_the_body_closes_the_connection() -> Result<(), Box<dyn std::error::Error>> {
    let head = "PUT /data/k HTTP/1.1\r\nhost: HOST\r\nexpect: 100-continue\r\ncontent-length: 9\r\n";
    let refused = exchange(&format!("{head}content-md5: no digest\r\n\r\n")).await?;
    assert!(refused.starts_with("http/1.1 400 "), "{refused}");
    assert!(refused.contains("connection: close\r\n"), "{refused}");
    let let_in = exchange(&format!("{head}\r\n")).await?;
    assert!(let_in.starts_with("http/1.1 100 "), "{let_in}");
    Ok(())
}

//! Lines of the input: standard input, a file or a FIFO, read in a thread of its own.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::PathBuf;

use sinks::events::MAX_LINE_BYTES;
use tokio::sync::mpsc;

/// Lines that wait to be looked at: little, since the batches behind them are where waiting belongs.
const WAITING_LINES: usize = 1024;

/// What was read.
#[derive(Debug)]
pub(crate) enum Input {
    /// A line without its line break, and its number from 1.
    Line(u64, Vec<u8>),
    /// A line that is longer than any may be.
    TooLong(u64),
    /// The input ended within a line: whoever wrote it did not finish.
    Cut(u64),
    /// It can't be read.
    Failed(io::Error),
}

/// Reads until the end, or until nobody wants more; the channel closes then.
pub(crate) fn lines(path: Option<PathBuf>) -> mpsc::Receiver<Input> {
    let (sender, receiver) = mpsc::channel(WAITING_LINES);
    std::thread::spawn(move || {
        let opened: io::Result<Box<dyn BufRead>> = match path {
            None => Ok(Box::new(BufReader::with_capacity(1 << 16, io::stdin()))),
            // Of a FIFO this waits until somebody opens it to write.
            Some(path) => {
                File::open(path).map(|file| Box::new(BufReader::with_capacity(1 << 16, file)) as Box<_>)
            }
        };
        let mut input = match opened {
            Ok(input) => input,
            Err(error) => return drop(sender.blocking_send(Input::Failed(error))),
        };
        for number in 1.. {
            let (read, last) = next(&mut *input, number);
            if read.is_none_or(|read| sender.blocking_send(read).is_err()) || last {
                return;
            }
        }
    });
    receiver
}

/// One line, and whether nothing may follow it; nothing at the end.
fn next(input: &mut dyn BufRead, number: u64) -> (Option<Input>, bool) {
    let mut line = Vec::new();
    match input.take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line) {
        Ok(0) => (None, true),
        Ok(_) if line.last() == Some(&b'\n') => {
            line.pop();
            (Some(Input::Line(number, line)), false)
        }
        Ok(_) if line.len() > MAX_LINE_BYTES => (Some(Input::TooLong(number)), true),
        Ok(_) => (Some(Input::Cut(number)), true),
        Err(error) => (Some(Input::Failed(error)), true),
    }
}

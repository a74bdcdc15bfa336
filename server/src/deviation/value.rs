//! The values that deviations take.

use std::str::FromStr;

use crate::error::Code;

/// A value in the text of a deviation.
pub(super) trait Value: Sized {
    /// # Errors
    /// What is wrong with the text.
    fn read(text: &str) -> Result<Self, String>;
    fn show(&self) -> String;
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no whole number"))
}

impl Value for u64 {
    fn read(text: &str) -> Result<Self, String> {
        number(text)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for Code {
    fn read(text: &str) -> Result<Self, String> {
        Self::from_name(text)
            .ok_or_else(|| format!("{text:?} is no S3 error code such as KeyTooLongError or InvalidArgument"))
    }

    fn show(&self) -> String {
        self.as_str().to_owned()
    }
}

/// A limit in bytes of UTF-8, and what is answered above it; as text `255:KeyTooLongError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The most bytes that are taken.
    pub bytes: usize,
    /// The error code for more.
    pub code: Code,
}

impl Value for Limit {
    fn read(text: &str) -> Result<Self, String> {
        let (bytes, code) = match text.split_once(':') {
            Some((bytes, code)) => (bytes, Code::read(code)?),
            None => (text, Code::KeyTooLongError),
        };
        Ok(Self { bytes: number(bytes)?, code })
    }

    fn show(&self) -> String {
        format!("{}:{}", self.bytes, self.code.as_str())
    }
}

/// When a condition is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// When the head of the request is there, before its body.
    Head,
    /// When all of the body has arrived.
    Body,
}

/// The time between the look at a condition and the write, which then looks no more; as text `20:head`, or below a
/// millisecond `100us:head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Microseconds between look and write.
    pub us: u64,
    /// When the look is.
    pub at: Moment,
}

impl Value for Window {
    fn read(text: &str) -> Result<Self, String> {
        let (ms, at) = match text.split_once(':') {
            None | Some((_, "head")) => (text.trim_end_matches(":head"), Moment::Head),
            Some((ms, "body")) => (ms, Moment::Body),
            Some((_, other)) => {
                return Err(format!("{other:?} is no moment: give head or body after the milliseconds"));
            }
        };
        let us = match ms.strip_suffix("us") {
            Some(us) => number(us)?,
            None => number::<u64>(ms)?.checked_mul(1000).ok_or_else(|| format!("{ms:?} ms is too long"))?,
        };
        Ok(Self { us, at })
    }

    fn show(&self) -> String {
        let at = match self.at {
            Moment::Head => "head",
            Moment::Body => "body",
        };
        match self.us % 1000 {
            0 => format!("{}:{at}", self.us / 1000),
            _ => format!("{}us:{at}", self.us),
        }
    }
}

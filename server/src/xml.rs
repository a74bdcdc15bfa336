//! XML in and out: the only user of quick-xml.
//!
//! Documents come in as small trees with limits on depth and on the number of elements; a document
//! type declaration is refused where it stands, so no entity is ever defined, let alone expanded.

use quick_xml::Reader;
use quick_xml::events::Event;

use crate::error::{Code, S3Error};

/// The namespace of every S3 document but the error document, which has none.
pub(crate) const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

const MAX_DEPTH: usize = 16;
/// DeleteObjects names up to 1000 objects of five elements, CompleteMultipartUpload 10,000 parts of eight.
const MAX_ELEMENTS: usize = 100_000;

/// One element of a request's document.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

impl Element {
    /// The first child of that name.
    pub(crate) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|c| c.name == name)
    }

    /// The text of the first child of that name.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|c| c.text.as_str())
    }

    /// Every child of that name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |c| c.name == name)
    }
}

/// Reads a request's document, whose root must be `root`.
///
/// # Errors
/// `MalformedXML` for anything that is not well-formed, has another root, a document type declaration,
/// an unknown entity, or more depth or elements than S3's own requests need.
pub(crate) fn parse(body: &[u8], root: &str) -> Result<Element, S3Error> {
    let document = tree(body).ok_or_else(|| S3Error::new(Code::MalformedXML))?;
    if document.name == root { Ok(document) } else { Err(S3Error::new(Code::MalformedXML)) }
}

fn tree(body: &[u8]) -> Option<Element> {
    let text = std::str::from_utf8(body).ok()?;
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Element> = vec![Element::default()];
    let mut elements = 0;
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                elements += 1;
                if open.len() > MAX_DEPTH || elements > MAX_ELEMENTS {
                    return None;
                }
                open.push(Element { name: start.local_name().into_inner().to_owned(), ..Element::default() });
            }
            Event::End(_) => {
                let done = open.pop()?;
                open.last_mut()?.children.push(done);
            }
            Event::Text(part) => open.last_mut()?.text.push_str(&part),
            Event::CData(part) => open.last_mut()?.text.push_str(&part),
            Event::GeneralRef(reference) => {
                let character = match reference.resolve_char_ref().ok()? {
                    Some(character) => character,
                    None => predefined(&reference)?,
                };
                open.last_mut()?.text.push(character);
            }
            Event::DocType(_) => return None,
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => break,
            Event::Empty(_) => return None, // not produced: empty elements are expanded
        }
    }
    let [mut outside] = <[Element; 1]>::try_from(open).ok()?;
    (outside.text.trim().is_empty() && outside.children.len() == 1).then(|| outside.children.remove(0))
}

fn predefined(entity: &str) -> Option<char> {
    Some(match entity {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => return None,
    })
}

/// Writes a document, element by element.
pub(crate) struct Writer {
    out: String,
}

impl Writer {
    /// A document whose root stands in S3's namespace.
    pub(crate) fn document(root: &str, content: impl FnOnce(&mut Self)) -> String {
        Self::with_root(&format!("{root} xmlns=\"{NAMESPACE}\""), root, content)
    }

    /// The error document: its root has no namespace.
    pub(crate) fn error(content: impl FnOnce(&mut Self)) -> String {
        Self::with_root("Error", "Error", content)
    }

    fn with_root(open: &str, root: &str, content: impl FnOnce(&mut Self)) -> String {
        let mut writer = Self { out: String::with_capacity(512) };
        writer.out.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        writer.out.push_str(&format!("<{open}>"));
        let start = writer.out.len();
        content(&mut writer);
        if writer.out.len() == start {
            // A document without content is one empty tag, as AWS writes it.
            writer.out.insert(start - 1, '/');
        } else {
            writer.close(root);
        }
        writer.out
    }

    /// An element with elements in it.
    pub(crate) fn element(&mut self, name: &str, content: impl FnOnce(&mut Self)) {
        self.open(name);
        content(self);
        self.close(name);
    }

    /// An element with text in it, escaped. Control characters leave as numeric references, as AWS
    /// sends them, although XML 1.0 has no place for most.
    pub(crate) fn text(&mut self, name: &str, text: impl AsRef<str>) {
        self.open(name);
        self.characters(text.as_ref());
        self.close(name);
    }

    /// Text within the element that is open, escaped likewise.
    pub(crate) fn characters(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '&' => self.out.push_str("&amp;"),
                '"' => self.out.push_str("&quot;"),
                c if c.is_ascii_control() && !matches!(c, '\t' | '\n') => {
                    self.out.push_str(&format!("&#x{:x};", u32::from(c)));
                }
                c => self.out.push(c),
            }
        }
    }

    /// The same, where there is a value.
    pub(crate) fn optional(&mut self, name: &str, text: Option<impl AsRef<str>>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    /// The same for numbers and booleans.
    pub(crate) fn value(&mut self, name: &str, value: impl std::fmt::Display) {
        self.text(name, value.to_string());
    }

    fn open(&mut self, name: &str) {
        self.out.push('<');
        self.out.push_str(name);
        self.out.push('>');
    }

    fn close(&mut self, name: &str) {
        self.out.push_str("</");
        self.out.push_str(name);
        self.out.push('>');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_text_references_and_namespaces() {
        let body = br#"<?xml version="1.0"?><s:A xmlns:s="x"><B>1 &lt;&#x32;&amp;</B><B/><C><![CDATA[<]]></C></s:A>"#;
        let a = parse(body, "A").unwrap();
        assert_eq!(a.all("B").map(|b| b.text.as_str()).collect::<Vec<_>>(), ["1 <2&", ""]);
        assert_eq!(a.text_of("C"), Some("<"));
    }

    #[test]
    fn refuses_what_is_not_a_plain_document() {
        let deep = format!("<A>{}{}</A>", "<B>".repeat(40), "</B>".repeat(40));
        for bad in [
            "",
            "<A>",
            "<B></B>",
            "<A></A><A></A>",
            "<A>&unknown;</A>",
            "x<A></A>",
            "<A></B>",
            "<!DOCTYPE A [<!ENTITY a \"b\">]><A>&a;</A>",
            "<!DOCTYPE A SYSTEM \"file:///etc/passwd\"><A/>",
            deep.as_str(),
        ] {
            assert_eq!(parse(bad.as_bytes(), "A").unwrap_err().code, Code::MalformedXML, "{bad}");
        }
    }

    #[test]
    fn writes_what_it_can_read_back() {
        let text = Writer::document("A", |w| {
            w.text("B", "<&>\"\u{1}\r");
            w.element("C", |w| w.value("D", 7));
        });
        assert!(text.contains("<B>&lt;&amp;&gt;&quot;&#x1;&#xd;</B><C><D>7</D></C></A>"), "{text}");
        assert!(
            Writer::document("A", |_| {}).ends_with("<A xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>")
        );
    }
}

//! Reads the few elements that checks look at in S3's documents. It is no validating parser: S3's answers
//! have no attributes on the elements read here, no comments and no nesting of an element in itself.

/// The text of the first `<name>`, unescaped; `None` where there is no such element.
pub fn element(document: &str, name: &str) -> Option<String> {
    elements(document, name).into_iter().next().map(|inner| unescape(&inner))
}

/// The raw inside of every `<name>`, in order.
pub fn elements(document: &str, name: &str) -> Vec<String> {
    let (open, close, empty) = (format!("<{name}>"), format!("</{name}>"), format!("<{name}/>"));
    let mut found = Vec::new();
    let mut rest = document;
    loop {
        let (start, none) = (rest.find(&open), rest.find(&empty));
        match (start, none) {
            (_, Some(at)) if start.is_none_or(|s| at < s) => {
                found.push(String::new());
                rest = &rest[at + empty.len()..];
            }
            (Some(at), _) => {
                let inside = &rest[at + open.len()..];
                let Some(end) = inside.find(&close) else { return found };
                found.push(inside[..end].to_owned());
                rest = &inside[end + close.len()..];
            }
            _ => return found,
        }
    }
}

/// Whether the root element is `<name>`, whatever its attributes.
pub(crate) fn root_is(document: &str, name: &str) -> bool {
    let mut rest = document.trim_start();
    if rest.starts_with("<?") {
        rest = rest.find("?>").map_or("", |at| rest[at + 2..].trim_start());
    }
    rest.strip_prefix('<')
        .and_then(|r| r.strip_prefix(name))
        .is_some_and(|r| r.starts_with(['>', ' ', '/', '\n', '\r', '\t']))
}

/// The five entities of XML and numeric references.
pub fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(end) = rest.find(';') else { break };
        let name = &rest[1..end];
        let number = name
            .strip_prefix("#x")
            .map(|h| u32::from_str_radix(h, 16))
            .or_else(|| name.strip_prefix('#').map(str::parse));
        match (name, number) {
            ("amp", _) => out.push('&'),
            ("lt", _) => out.push('<'),
            ("gt", _) => out.push('>'),
            ("quot", _) => out.push('"'),
            ("apos", _) => out.push('\''),
            (_, Some(Ok(code))) => out.extend(char::from_u32(code)),
            _ => out.push_str(&rest[..=end]),
        }
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    out
}

/// Text made safe inside an element.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_elements() {
        let list =
            "<?xml version=\"1.0\"?>\n<R xmlns=\"x\"><C><K>a&amp;b</K><E>&#34;e&quot;</E></C><C><K/></C></R>";
        assert_eq!(elements(list, "C").len(), 2);
        assert_eq!(element(list, "K").as_deref(), Some("a&b"));
        assert_eq!(element(list, "E").as_deref(), Some("\"e\""));
        assert_eq!(elements(list, "K"), ["a&amp;b", ""]);
        assert_eq!(element(list, "Missing"), None);
        assert!(root_is(list, "R") && !root_is(list, "C") && !root_is("", "R"));
        assert!(root_is("<Error><Code>x</Code></Error>", "Error"));
    }

    #[test]
    fn escaping_round_trips() {
        let text = "<a href=\"x\">&#x26;'&unknown; & done";
        assert_eq!(unescape(&escape(text)), text);
    }
}

//! As much of XML as the server's own documents need: elements and text, no mixed content.

#[derive(Debug, Default)]
pub struct Element {
    pub name: String,
    pub attributes: String,
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    /// The texts of all elements at a path below this one.
    pub fn texts(&self, path: &str) -> Vec<String> {
        let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let found = self.children.iter().filter(|child| child.name == first);
        match rest {
            None => found.map(|child| child.text.clone()).collect(),
            Some(rest) => found.flat_map(|child| child.texts(rest)).collect(),
        }
    }
}

/// Reads a document; `None` where it is none.
pub fn parse(text: &str) -> Option<Element> {
    let text = text.trim_start();
    let text = match text.strip_prefix("<?xml") {
        Some(rest) => rest.split_once("?>")?.1.trim_start(),
        None => text,
    };
    let mut open: Vec<Element> = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        if let Some(element) = open.last_mut() {
            element.text.push_str(&unescaped(before));
        }
        let (tag, behind) = after.split_once('>')?;
        rest = behind;
        let closed = match tag.strip_prefix('/') {
            Some(name) => open.pop().filter(|element| element.name == name)?,
            None => {
                let head = tag.strip_suffix('/').unwrap_or(tag);
                let (name, attributes) = head.split_once(' ').unwrap_or((head, ""));
                let element =
                    Element { name: name.into(), attributes: attributes.into(), ..Element::default() };
                if !tag.ends_with('/') {
                    open.push(element);
                    continue;
                }
                element
            }
        };
        match open.last_mut() {
            Some(parent) => parent.children.push(closed),
            None => return Some(closed),
        }
    }
    None
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let (entity, behind) = after.split_once(';').unwrap_or((after, ""));
        let character = match entity {
            "lt" => Some('<'),
            "gt" => Some('>'),
            "amp" => Some('&'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            number => number.strip_prefix('#').and_then(|number| {
                let code = match number.strip_prefix('x') {
                    Some(hex) => u32::from_str_radix(hex, 16),
                    None => number.parse(),
                };
                char::from_u32(code.ok()?)
            }),
        };
        out.extend(character);
        rest = behind;
    }
    out + rest
}

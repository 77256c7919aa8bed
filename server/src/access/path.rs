//! Addresses against the patterns of the table.
//!
//! The pages' own router understands dot segments, backslashes and percent signs in its way. An address that could mean
//! one thing here and another there is none of ours: ids, slugs and names of files are plain.

/// Whether an address can only be read in one way.
pub fn is_plain(path: &str) -> bool {
    let plain = |sign: u8| sign.is_ascii_alphanumeric() || b"/-_.~@".contains(&sign);
    path.starts_with('/')
        && path.bytes().all(plain)
        && !path.contains("//")
        && path.split('/').all(|part| !is_dots(part))
}

fn is_dots(part: &str) -> bool {
    part == "." || part == ".."
}

/// Whether an address fits a pattern: `{x}` stands for one segment, `{*x}` for one or more.
pub fn fits(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    for wanted in pattern.split('/') {
        if wanted.starts_with("{*") {
            return parts.next().is_some_and(|part| !part.is_empty());
        }
        match parts.next() {
            Some(part) if is_hole(wanted) && !part.is_empty() => {}
            Some(part) if part == wanted => {}
            _ => return false,
        }
    }
    parts.next().is_none()
}

/// What stands in an address where the pattern has `{name}`.
pub fn part<'a>(pattern: &str, path: &'a str, name: &str) -> Option<&'a str> {
    let is_it = |wanted: &str| wanted.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) == Some(name);
    pattern.split('/').zip(path.split('/')).find(|(wanted, _)| is_it(wanted)).map(|(_, part)| part)
}

fn is_hole(part: &str) -> bool {
    part.starts_with('{') && part.ends_with('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_addresses() {
        assert!(fits("/runs/{id}", "/runs/0198-a") && fits("/", "/") && fits("/docs/{*page}", "/docs/a/b"));
        assert_eq!(part("/api/v1/runs/{id}/files", "/api/v1/runs/7/files", "id"), Some("7"));
        assert_eq!(part("/runs/{id}", "/runs/7", "project"), None);
        for (pattern, path) in [
            ("/runs/{id}", "/runs/"),
            ("/runs/{id}", "/runs/1/2"),
            ("/runs/{id}", "/runs/1/"),
            ("/runs/{id}/files", "/runs/1"),
            ("/docs/{*page}", "/docs/"),
            ("/docs/{*page}", "/docs"),
            ("/", "/x"),
            ("/a", "/A"),
        ] {
            assert!(!fits(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn what_two_routers_could_read_in_two_ways_is_not_plain() {
        for plain in ["/", "/runs/0198-a_b.c", "/r/kq8~", "/docs/a/b", "/settings/users/ada@example.org"] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in [
            "/docs/../runs/1",
            "/docs/./x",
            "/docs/%2e%2e/runs/1",
            "/docs/.%2E/runs/1",
            "/docs\\..\\runs\\1",
            "/docs//x",
            "//evil.example/x",
            "/runs/%31",
            "/runs/1;x",
            "",
            "*",
            "runs",
        ] {
            assert!(!is_plain(other), "{other}");
        }
    }
}

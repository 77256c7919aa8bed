//! The plain page that says what went wrong with a form, for people; the pages proper are Leptos views.

use axum::response::Html;

/// A whole document with a heading, a sentence and the way back.
pub fn message(title: &str, detail: &str) -> Html<String> {
    let (title, detail) = (escape(title), escape(detail));
    Html(format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><meta name=\"robots\" content=\"noindex\">\
         <title>{title} - Rankscope</title><link rel=\"stylesheet\" href=\"/style.css\"></head>\
         <body><header class=\"top\"><a class=\"brand\" href=\"/\">Rankscope</a></header>\
         <main id=\"main\" class=\"message\"><h1>{title}</h1><p>{detail}</p>\
         <p><a class=\"button\" href=\"/\">To the runs</a></p></main></body></html>\n"
    ))
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            sign => safe.push(sign),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_visitors_sent_is_shown_as_text() {
        let page = super::message("t", "<script>alert('1')</script>&\"").0;
        assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;"));
        assert!(!page.contains("<script"));
    }
}

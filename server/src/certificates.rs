//! Authorities whose certificates are believed instead of Mozilla's list, from a file.

use anyhow::{Context, bail};
use std::{fs, path::Path};
use ureq::tls::{PemItem, RootCerts, parse_pem};

/// The authorities in a file (PEM).
pub fn authorities(path: &Path) -> anyhow::Result<RootCerts> {
    read(path).with_context(|| format!("reading certificates from {}", path.display()))
}

fn read(path: &Path) -> anyhow::Result<RootCerts> {
    let pem = fs::read(path)?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        bail!("there is no certificate in it (PEM)");
    }
    Ok(certificates.into())
}

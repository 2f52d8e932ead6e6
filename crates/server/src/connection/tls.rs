//! TLS, for an office without a proxy in front.

use std::io;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::TlsFiles;

/// Accepts TLS with the office's certificate.
#[derive(Clone)]
pub(crate) struct ServerTls(TlsAcceptor);

fn unreadable(what: &str, path: &std::path::Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("cannot use {what} {}: {error}", path.display()))
}

impl ServerTls {
    /// Reads the certificate and key. Errors name the file.
    pub(crate) fn load(files: &TlsFiles) -> io::Result<Self> {
        let chain = CertificateDer::pem_file_iter(&files.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unreadable("certificate", &files.certificate, error))?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable("key", &files.key, error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| unreadable("certificate", &files.certificate, error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

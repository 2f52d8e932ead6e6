//! TLS without a proxy. The certificate is for tests only: for localhost, and not trusted.

use std::path::PathBuf;
use std::sync::Arc;

use amb_server::{Config, TlsFiles, serve};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::test_server::{TestServer, soon};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/certificate").join(name)
}

#[tokio::test]
async fn an_office_with_a_certificate_serves_tls() {
    let files = TlsFiles { certificate: file("certificate.pem"), key: file("key.pem") };
    let server = TestServer::sqlite_with(Config { tls: Some(files.clone()), ..Config::default() }).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.certificate).unwrap()).unwrap();
    let client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(&server.host).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = soon(TlsConnector::from(Arc::new(client)).connect(name, stream)).await.unwrap();
    stream.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_missing_certificate_is_named_in_the_error() {
    let server = TestServer::sqlite().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tls = Some(TlsFiles { certificate: file("nowhere.pem"), key: file("key.pem") });
    let config = Config { tls, ..Config::default() };
    let error = serve(listener, server.store.clone(), config, async {}).await.unwrap_err();
    assert!(error.to_string().contains("nowhere.pem"), "{error}");
}

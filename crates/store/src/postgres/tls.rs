//! TLS to PostgreSQL, configured like libpq: `sslmode` and `sslrootcert` in the URL.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use percent_encoding::percent_decode_str;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

use crate::StoreError;
use crate::error::Result;

/// How the server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateCheck {
    /// Not at all, as for `prefer` and `require`.
    Nothing,
    /// It has to be signed by a trusted root, as for `verify-ca`.
    Chain,
    /// It also has to match the host name, as for `verify-full`.
    ChainAndName,
}

/// Splits a URL into the part that tokio-postgres understands and the TLS settings.
pub(super) fn split(url: &str) -> Result<(String, Tls)> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut check, mut roots) = (CertificateCheck::Nothing, None);
    let mut kept = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", "verify-ca")) => {
                check = CertificateCheck::Chain;
                kept.push("sslmode=require");
            }
            Some(("sslmode", "verify-full")) => {
                check = CertificateCheck::ChainAndName;
                kept.push("sslmode=require");
            }
            Some(("sslrootcert", file)) => roots = Some(decoded(file)?),
            _ => kept.push(pair),
        }
    }
    // As in libpq: with a root certificate, `require` verifies the chain.
    if roots.is_some() && check == CertificateCheck::Nothing && kept.contains(&"sslmode=require") {
        check = CertificateCheck::Chain;
    }
    let url = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
    Ok((url, Tls::new(check, roots.as_deref())?))
}

fn decoded(text: &str) -> Result<String> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| StoreError::invalid("sslrootcert in the database URL is not UTF-8"))
}

/// A TLS connector. Cheap to clone.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    fn new(check: CertificateCheck, roots: Option<&str>) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(StoreError::internal)?;
        let config = if check == CertificateCheck::ChainAndName {
            builder.with_root_certificates(trusted(roots)?).with_no_client_auth()
        } else {
            let chain = match check {
                CertificateCheck::Nothing => None,
                _ => {
                    let roots = Arc::new(trusted(roots)?);
                    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
                    Some(verifier.build().map_err(StoreError::internal)?)
                }
            };
            let verifier = Arc::new(AnyName { provider, chain });
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        };
        Ok(Self(Arc::new(config).into()))
    }
}

/// Returns the root certificates of a file, or the public ones.
fn trusted(file: Option<&str>) -> Result<RootCertStore> {
    let Some(file) = file.filter(|file| *file != "system") else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let unusable = |error: &dyn std::fmt::Display| {
        StoreError::invalid(format!("sslrootcert {file} in the database URL cannot be used: {error}"))
    };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(Path::new(file)).map_err(|error| unusable(&error))?;
    for certificate in certificates {
        roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"there is no certificate in it"));
    }
    Ok(roots)
}

/// Accepts a certificate for any host: signed by a trusted root, or, without `chain`, any certificate.
#[derive(Debug)]
struct AnyName {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is verified last, after the chain.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { connector: self.0.clone(), host: host.to_owned() })
    }
}

/// A handshake with one host. The host is parsed only in the handshake: a Unix socket has no host name, and no
/// handshake.
pub(super) struct Handshake {
    connector: TlsConnector,
    host: String,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let host = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(EncryptedStream(self.connector.connect(host, stream).await?))
        })
    }
}

/// A TLS connection.
pub(super) struct EncryptedStream<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_settings_are_removed_from_the_url() {
        let url = |text: &str| split(text).unwrap().0;
        assert_eq!(url("postgres://h/d"), "postgres://h/d");
        assert_eq!(url("postgres://h/d?sslmode=disable"), "postgres://h/d?sslmode=disable");
        assert_eq!(url("postgres://h/d?a=1&sslmode=verify-full&b=2"), "postgres://h/d?a=1&sslmode=require&b=2");
        assert_eq!(url("postgres://h/d?sslmode=verify-ca"), "postgres://h/d?sslmode=require");
        let missing = split("postgres://h/d?sslmode=verify-full&sslrootcert=%2Fno%2Ffile").unwrap_err();
        assert!(missing.detail().contains("/no/file"), "{missing}");
    }
}

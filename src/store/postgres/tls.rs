//! TLS to the database: whom to trust, as a client configuration.
//!
//! Not here: whether TLS is used. Invariant: a certificate is left unchecked only for [`Trust::Anyone`].

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::target::BadUrl;

/// Whose certificate is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trust {
    /// Whoever answers. Against listeners only.
    Anyone,
    /// Whom the system trusts.
    System,
    /// Whom the certificates of this PEM file vouch for.
    Root(PathBuf),
}

/// A client that trusts so.
pub(super) fn client(trust: &Trust) -> Result<ClientConfig, BadUrl> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| BadUrl::new(format!("TLS: {error}")))?;
    let roots = match trust {
        Trust::Anyone => {
            let verifier = Arc::new(Unchecked(provider));
            let builder = builder
                .dangerous()
                .with_custom_certificate_verifier(verifier);
            return Ok(builder.with_no_client_auth());
        }
        Trust::System => system()?,
        Trust::Root(file) => root(file)?,
    };
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The system's roots, by the reader that Pingora brings; SSL_CERT_FILE and SSL_CERT_DIR say otherwise.
fn system() -> Result<RootCertStore, BadUrl> {
    let found = pingora_core::tls::load_native_certs();
    let found =
        found.map_err(|error| BadUrl::new(format!("sslrootcert=system: cannot read: {error}")))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found);
    some(roots, "the system")
}

fn root(file: &PathBuf) -> Result<RootCertStore, BadUrl> {
    let wrong = |error: &dyn std::fmt::Display| {
        BadUrl::new(format!("sslrootcert: {}: {error}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    some(roots, "the file of sslrootcert")
}

fn some(roots: RootCertStore, whose: &str) -> Result<RootCertStore, BadUrl> {
    if roots.is_empty() {
        return Err(BadUrl::new(format!(
            "{whose} has no certificate to check the server by"
        )));
    }
    Ok(roots)
}

/// Asks for no proof of who the server is. Signatures are still checked, so that a broken handshake does not pass.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

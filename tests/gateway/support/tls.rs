//! Certificates made on the spot, a client over TLS, and a TLS front for providers that speak clear text.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rondo::policy::snapshot::ListenTls;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A self-signed certificate for loopback, in memory and as files.
pub struct Identity {
    cert: CertificateDer<'static>,
    key: Vec<u8>,
    pub files: ListenTls,
}

impl Identity {
    pub fn new() -> Identity {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let names = ["127.0.0.1", "localhost", "gateway.test"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str, text: String| {
            let name = format!("rondo-{}-{number}-{kind}.pem", std::process::id());
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let files = ListenTls {
            cert: file("cert", made.cert.pem()),
            key: file("key", made.key_pair.serialize_pem()),
        };
        Identity {
            cert: made.cert.der().clone(),
            key: made.key_pair.serialize_der(),
            files,
        }
    }

    /// A connection to a TLS listener with this certificate.
    pub async fn connect(
        &self,
        addr: SocketAddr,
        alpn: &str,
    ) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.cert.clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from("gateway.test").unwrap();
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
        stream
    }

    /// Accepts TLS with these protocols and passes the clear text on, byte for byte.
    pub async fn front(&self, behind: SocketAddr, alpn: &[&str]) -> SocketAddr {
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let key = PrivatePkcs8KeyDer::from(self.key.clone());
        let mut config = config
            .with_no_client_auth()
            .with_single_cert(vec![self.cert.clone()], key.into())
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    stream.set_nodelay(true).unwrap();
                    let Ok(mut outside) = acceptor.accept(stream).await else {
                        return;
                    };
                    let mut inside = TcpStream::connect(behind).await.unwrap();
                    inside.set_nodelay(true).unwrap();
                    let _ = tokio::io::copy_bidirectional_with_sizes(
                        &mut outside,
                        &mut inside,
                        64 << 10,
                        64 << 10,
                    )
                    .await;
                });
            }
        });
        addr
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.files.cert);
        let _ = std::fs::remove_file(&self.files.key);
    }
}

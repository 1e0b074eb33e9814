//! `barepingora PORT UPSTREAM_PORT`: a proxy of one upstream with nothing but what Pingora does by itself.
//!
//! It is the floor of what a gateway on Pingora can cost. It is no gateway: it reads no body, knows no model, fails over to nobody and keeps
//! no record.

use std::process::ExitCode;
use std::time::Duration;

use async_trait::async_trait;
use pingora::prelude::{HttpPeer, Result};
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::{Opt, ServerConf};

/// Kept connections to the upstream: more than any scenario opens at once.
const KEPT_MAX: usize = 4096;

struct Bare {
    upstream: u16,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        let mut peer = HttpPeer::new(("127.0.0.1", self.upstream), false, String::new());
        peer.options.connection_timeout = Some(Duration::from_secs(5));
        peer.options.read_timeout = Some(Duration::from_secs(60));
        peer.options.idle_timeout = Some(Duration::from_secs(60));
        Ok(Box::new(peer))
    }
}

fn main() -> ExitCode {
    let ports: Vec<u16> = std::env::args().skip(1).filter_map(|port| port.parse().ok()).collect();
    let [listen, upstream] = ports[..] else {
        eprintln!("usage: barepingora PORT UPSTREAM_PORT");
        return ExitCode::from(2);
    };
    let conf = ServerConf { threads: 1, upstream_keepalive_pool_size: KEPT_MAX, ..Default::default() };
    let mut server = Server::new_with_opt_and_conf(Opt::default(), conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Bare { upstream });
    service.add_tcp(&format!("127.0.0.1:{listen}"));
    server.add_service(service);
    server.run_forever()
}

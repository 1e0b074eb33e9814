# docker build -t rondo . && docker run --rm -p 8080:8080 -v "$PWD/conf:/etc/rondo:ro" rondo
#
# The image holds the binary, the certificates of the public authorities and nothing to configure: mount a file at /etc/rondo/rondo.yaml.
# It runs as a user without rights, needs no capability, and its root may be read-only (--read-only); only a ledger in a file needs the
# volume /var/lib/rondo. In that file, listen on 0.0.0.0:8080; the admin plane may stay on loopback, where the health check asks it.

FROM rust:1-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends cmake \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Dependencies first, so that a change of our code does not build them again.
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src tests/pure tests/gateway \
    && echo 'fn main() {}' | tee src/main.rs tests/pure/main.rs tests/gateway/main.rs > /dev/null \
    && touch src/lib.rs \
    && cargo build --locked --release --bin rondo \
    && rm -rf src tests
COPY src src
COPY README.md LICENSE ./
# The placeholders are newer than the files that were just copied.
RUN mkdir -p tests/pure tests/gateway && touch tests/pure/main.rs tests/gateway/main.rs \
    && find src -name '*.rs' -exec touch {} + \
    && cargo build --locked --release --bin rondo \
    && strip target/release/rondo

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin rondo \
    && install -d -o rondo -g rondo /var/lib/rondo
COPY --from=build /src/target/release/rondo /usr/local/bin/rondo
COPY --from=build /src/LICENSE /usr/share/doc/rondo/LICENSE
USER 10001:10001
# Relative names of a ledger start here.
WORKDIR /var/lib/rondo
VOLUME /var/lib/rondo
ENV RONDO_CONFIG=/etc/rondo/rondo.yaml
EXPOSE 8080 9090
# SIGTERM drains: give `docker stop` more time than server.shutdown_grace_ms.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s --retries=3 CMD ["rondo", "health"]
ENTRYPOINT ["rondo"]
CMD ["run"]

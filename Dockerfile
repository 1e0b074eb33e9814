# Needs BuildKit or Podman:  docker build -t rondo . && docker run --rm -p 8080:8080 -v "$PWD/conf:/etc/rondo:ro" rondo
#
# The image holds the binary, the certificates of the public authorities and nothing to configure: mount a file at /etc/rondo/rondo.yaml.
# It runs as a user without rights, needs no capability, and its root may be read-only (--read-only); only a ledger in a file needs the
# volume /var/lib/rondo. In that file, listen on 0.0.0.0:8080; the admin plane may stay on loopback, where the health check asks it.

FROM rust:1-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends cmake \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Cargo checks that the tests named in its manifest exist, so they are there although the image has none of them.
COPY Cargo.toml Cargo.lock ./
# How the allocator is built.
COPY .cargo .cargo
COPY src src
COPY tests tests
COPY README.md LICENSE ./
# The caches stay outside of the image: a change of our code builds our code.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release --bin rondo \
    && strip -o /usr/local/bin/rondo target/release/rondo

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 rondo \
    && useradd --system --uid 10001 --gid rondo --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin rondo \
    && install -d -o rondo -g rondo /var/lib/rondo
COPY --from=build /usr/local/bin/rondo /usr/local/bin/rondo
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

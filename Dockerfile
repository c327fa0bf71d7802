# The fragment server in a container. Build and run:
#   docker build -t live-linked-data .
#   docker run -p 3000:3000 -v trains:/data -e TPF_SERVER_BASE_URL=http://localhost:3000/ \
#       -v "$PWD/trains.nt:/trains.nt:ro" live-linked-data /trains.nt
# The tag can be given another content; a digest cannot:
#   docker build --build-arg BASE=python@sha256:… (docker buildx imagetools inspect says which)
ARG BASE=python:3.12-slim
FROM $BASE

WORKDIR /app
COPY LICENSE README.md constraints.txt requirements-image.txt pyproject.toml hatch_build.py run ./
COPY annotations annotations
COPY experiments experiments
COPY loaders loaders
COPY tpf_client tpf_client
COPY tpf_server tpf_server

# The server alone, neither Spark nor what tests need: wheels by their hashes.
ENV EXTRAS=server REQUIREMENTS=requirements-image.txt
RUN ./run install

ENV TPF_SERVER_HOST=0.0.0.0 TPF_SERVER_PORT=3000 TPF_SERVER_DATA_DIR=/data
RUN install -d -o nobody /data
VOLUME /data
EXPOSE 3000
USER nobody
ENTRYPOINT ["./run", "exec", "tpf-server"]

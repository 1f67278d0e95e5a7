# Two images of the same binary. `python`, the last and so the default, has Python and numpy.
# `binary` has nothing else, for Go backends or for copying the binary. Both run as 1000:1000, or as
# any user with group 0, on a read-only root with a writable /tmp.
#
#   docker build --build-arg VERSION=$(.ci/version) -t nereid .
#   docker run --read-only --tmpfs /tmp -p 8000:8000 -v "$PWD/models:/models:ro" nereid
ARG GO_IMAGE=golang:1.26
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG SOURCE_DATE_EPOCH=0
# A Python script, for which this image has the interpreter, makes the list of contents.
RUN REQUIRED=1 make build VERSION="$VERSION" \
	&& .ci/release bin/nereid "$VERSION" /tmp/release go "$SOURCE_DATE_EPOCH" "$(go env GOARCH)=bin/nereid" \
	&& deploy/image/layout bin/nereid /out /tmp/release/*.spdx.json \
	&& deploy/image/zones "$(go env GOROOT)/lib/time/zoneinfo.zip" /zones \
	&& mkdir -m 1777 /out/tmp

FROM scratch AS binary
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/ /
COPY --from=build /zones/ /
ARG VERSION=dev
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="nereid" \
	org.opencontainers.image.description="Inference server for Triton model repositories: the binary alone" \
	org.opencontainers.image.version="${VERSION}" \
	org.opencontainers.image.revision="${REVISION}" \
	org.opencontainers.image.created="${CREATED}" \
	org.opencontainers.image.source="https://github.com/nereid-serving/nereid" \
	org.opencontainers.image.licenses="Apache-2.0" \
	org.opencontainers.image.base.name="scratch" \
	com.nvidia.tritonserver.version="2.51.0" \
	com.amazonaws.sagemaker.capabilities.accept-bind-to-port="true" \
	com.amazonaws.sagemaker.capabilities.multi-models="true"
ENV PATH=/usr/local/bin:/opt/tritonserver/bin HOME=/tmp USER=nereid TRITON_SERVER_VERSION=2.51.0
USER 1000:1000
WORKDIR /tmp
EXPOSE 8000 8001 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 CMD ["nereid", "health"]
ENTRYPOINT ["nereid-entrypoint"]
CMD ["tritonserver", "--model-repository=/models"]

FROM ${PYTHON_IMAGE} AS python
ARG PYTHON_IMAGE
RUN pip install --no-cache-dir --root-user-action=ignore numpy
COPY --from=build /out/usr /usr
COPY --from=build /out/opt /opt
COPY --from=build /out/models /models
ARG VERSION=dev
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="nereid" \
	org.opencontainers.image.description="Inference server for Triton model repositories, with Python and numpy" \
	org.opencontainers.image.version="${VERSION}" \
	org.opencontainers.image.revision="${REVISION}" \
	org.opencontainers.image.created="${CREATED}" \
	org.opencontainers.image.source="https://github.com/nereid-serving/nereid" \
	org.opencontainers.image.licenses="Apache-2.0" \
	org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
	com.nvidia.tritonserver.version="2.51.0" \
	com.amazonaws.sagemaker.capabilities.accept-bind-to-port="true" \
	com.amazonaws.sagemaker.capabilities.multi-models="true"
# Models and their libraries write to /tmp, the only writable folder. For users that are not in
# /etc/passwd, USER provides a name: libraries such as torch use it for their caches.
ENV PATH=/usr/local/bin:/usr/bin:/bin:/opt/tritonserver/bin HOME=/tmp USER=nereid XDG_CACHE_HOME=/tmp/.cache TRITON_SERVER_VERSION=2.51.0
USER 1000:1000
WORKDIR /tmp
EXPOSE 8000 8001 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 CMD ["nereid", "health"]
ENTRYPOINT ["nereid-entrypoint"]
CMD ["tritonserver", "--model-repository=/models"]

# One static binary, nothing else. Build it first:
#   CGO_ENABLED=0 go build -trimpath -o bin/zkcontroller ./cmd/zkcontroller
FROM scratch
COPY bin/zkcontroller /zkcontroller
USER 65534:65534
STOPSIGNAL SIGTERM
ENTRYPOINT ["/zkcontroller"]

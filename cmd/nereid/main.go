// Command nereid serves Triton model repositories of Python models over HTTP and gRPC. All that it
// does is in package cli, for programs that link backends of their own into a server.
package main

import "github.com/nereid-serving/nereid/cli"

func main() { cli.Main(extensions()...) }

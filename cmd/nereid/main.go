// Command nereid serves Triton model repositories of Python models over HTTP and gRPC. Its code is
// in package cli, so that programs with linked backends can reuse it.
package main

import "github.com/nereid-serving/nereid/cli"

func main() { cli.Main(extensions()...) }

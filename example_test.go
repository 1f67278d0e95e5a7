package nereid_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/nereid-serving/nereid"
	"github.com/rs/zerolog"
)

// This program serves a repository over HTTP only, until Ctrl-C ends it.
func Example() {
	options := nereid.Defaults()
	options.Repository.Paths = []string{"/srv/models"}
	options.HTTP.Address = "127.0.0.1"
	options.GRPC.Allow = false
	options.Metrics.Allow = false
	options.Logger = zerolog.New(os.Stderr)

	server, err := nereid.New(options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer server.Close()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := server.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// The error for invalid options names the field.
func ExampleOptions_Validate() {
	options := nereid.Defaults()
	options.Repository.Paths = []string{"/srv/models"}
	options.HTTP.Port = 70000
	fmt.Println(options.Validate())
	// Output: HTTP.Port is 70000, want 0 to 65535
}

// A caller that needs the port chosen by the kernel loads and listens first.
func ExampleServer_Listen() {
	options := nereid.Defaults()
	options.Repository.Paths = []string{"/srv/models"}
	options.HTTP.Port = 0

	server, err := nereid.New(options)
	if err != nil {
		return
	}
	defer server.Close()
	ctx := context.Background()
	if err := server.Load(ctx); err != nil {
		_ = server.Shutdown()
		return
	}
	if err := server.Listen(); err != nil {
		_ = server.Shutdown()
		return
	}
	fmt.Println("serving at", server.HTTPAddr())
	_ = server.Run(ctx)
}

package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
)

const summary = `Asks the server at ADDRESS, host:port of its HTTP endpoint, whether it lives. The exit status is 0 if it does, and 1 if not, or if it
does not answer. Without ADDRESS it is localhost:8000. Images have it as their health check.`

// Run runs the command line that follows `nereid health` and returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	flags := command.Flags("health")
	ready := flags.Bool("ready", false, "ask whether it is ready to serve, too: /v2/health/ready in the place of /v2/health/live")
	limit := flags.Duration("timeout", 5*time.Second, "how long its answer is waited for, a `duration`")
	names, err := command.Parse(flags, args)
	address := "localhost:8000"
	switch {
	case err != nil:
	case len(names) > 1:
		err = command.Usagef("got %q besides the address, want nothing", names[1])
	default:
		if len(names) == 1 {
			address = strings.TrimSuffix(strings.TrimPrefix(names[0], "http://"), "/")
		}
		if _, _, wrong := net.SplitHostPort(address); wrong != nil {
			err = command.Usagef("the address is %q, want host:port", address)
		}
	}
	if err == nil {
		path := "/v2/health/live"
		if *ready {
			path = "/v2/health/ready"
		}
		err = ask(address, path, *limit)
		if err == nil {
			fmt.Fprintln(stdout, address+path+": yes")
		}
	}
	return command.End("nereid health", err, func(w io.Writer) { command.Usage(w, "nereid health [--ready] [ADDRESS]", summary, flags) }, stdout, stderr)
}

// dial connects to localhost without a look-up of the name: an image from scratch has no /etc/hosts of its own, and a health check is
// not to wait for a name server.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "localhost" {
		return dialer.DialContext(ctx, network, address)
	}
	connection, err := dialer.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		if six, err6 := dialer.DialContext(ctx, network, net.JoinHostPort("::1", port)); err6 == nil {
			return six, nil
		}
	}
	return connection, err
}

// ask returns nil if the server says yes.
func ask(address, path string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	// A proxy that the environment names has nothing to do with a server at this machine.
	reply, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}).Do(r)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var refused *net.OpError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("%s: %w; the server listens when its models are loaded", address, refused.Err)
	case err != nil:
		return fmt.Errorf("%s: %w", address, err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: status %d, want 200", address, path, reply.StatusCode)
	}
	return nil
}

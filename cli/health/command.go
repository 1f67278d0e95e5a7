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
	"github.com/nereid-serving/nereid/server/connections"
)

const summary = `Checks whether the server at ADDRESS is live. ADDRESS is the host:port of its HTTP endpoint, or unix:<path>; the default is localhost:8000. The exit
status is 0 if the server is live, and 1 if it is not or does not answer. With --ready, models that are not ready are listed.`

// Run runs the command line that follows `nereid health` and returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	flags := command.Flags("health")
	ready := flags.Bool("ready", false, "check whether the server is ready (/v2/health/ready) instead of live (/v2/health/live)")
	limit := flags.Duration("timeout", 5*time.Second, "maximum wait for the answer")
	names, err := command.Parse(flags, args)
	address := "localhost:8000"
	switch {
	case err != nil:
	case len(names) > 1:
		err = command.Usagef("unexpected argument %q after the address", names[1])
	default:
		if len(names) == 1 {
			address = strings.TrimSuffix(strings.TrimPrefix(names[0], "http://"), "/")
		}
		_, unix := connections.UnixPath(address)
		if _, _, wrong := net.SplitHostPort(address); wrong != nil && !unix {
			err = command.Usagef("the address is %q, want host:port or unix:<path>", address)
		}
	}
	if err == nil {
		path := "/v2/health/live"
		if *ready {
			path = readyPath
		}
		err = newServer(address).ask(path, *limit)
		if err == nil {
			fmt.Fprintln(stdout, address+path+": yes")
		}
	}
	return command.End("nereid health", err, func(w io.Writer) { command.Usage(w, "nereid health [--ready] [ADDRESS]", summary, flags) }, stdout, stderr)
}

// server is the endpoint to ask.
type server struct {
	address string // as given, for errors
	url     string // without a path
	client  *http.Client
}

// newServer returns the endpoint at an address. Its client ignores proxies from the environment,
// because the server is on this machine.
func newServer(address string) *server {
	s := &server{address: address, url: "http://" + address}
	if _, unix := connections.UnixPath(address); unix {
		s.url = "http://localhost"
	}
	s.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: s.dial}}
	return s
}

// dial connects to localhost without resolving the name: an image from scratch has no /etc/hosts,
// and a health check should not wait for a name server.
func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var dialer net.Dialer
	if path, unix := connections.UnixPath(s.address); unix {
		return dialer.DialContext(ctx, "unix", path)
	}
	host, port, err := net.SplitHostPort(s.address)
	if err != nil || host != "localhost" {
		return dialer.DialContext(ctx, "tcp", s.address)
	}
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		if six, err6 := dialer.DialContext(ctx, "tcp", net.JoinHostPort("::1", port)); err6 == nil {
			return six, nil
		}
	}
	return connection, err
}

const readyPath = "/v2/health/ready"

// ask returns nil if the server says yes.
func (s *server) ask(path string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return err
	}
	reply, err := s.client.Do(r)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var refused *net.OpError
	switch {
	case errors.As(err, &refused) && refused.Op == "dial":
		return fmt.Errorf("%s: %w; a server listens once its models are loaded", s.address, refused.Err)
	case err != nil && ctx.Err() == nil && s.isHTTP2(ctx):
		return fmt.Errorf("%s is a gRPC endpoint: %s", s.address, wantHTTP)
	case err != nil:
		return fmt.Errorf("%s: %w", s.address, err)
	}
	defer reply.Body.Close()
	switch reply.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusNotFound:
		return fmt.Errorf("%s%s: status 404, want 200; %s", s.address, path, wantHTTP)
	}
	text := ""
	if path == readyPath {
		if models := s.notReady(ctx); len(models) > 0 {
			text = "; not ready: " + strings.Join(models, ", ")
		}
	}
	return fmt.Errorf("%s%s: status %d, want 200%s", s.address, path, reply.StatusCode, text)
}

// wantHTTP tells which address to give.
const wantHTTP = "give the address of the HTTP endpoint; its port is 8000 unless the server has another --http-port"

// isHTTP2 reports whether an endpoint speaks HTTP/2 from the first byte, as a gRPC endpoint does.
func (s *server) isHTTP2(ctx context.Context) bool {
	connection, err := s.dial(ctx, "", "")
	if err != nil {
		return false
	}
	defer connection.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = connection.SetDeadline(deadline) // a closed connection fails below
	}
	// Each side begins with a SETTINGS frame, the client after its preface: 3 bytes of length, type
	// 4, flags, stream 0.
	if _, err := io.WriteString(connection, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		return false
	}
	var head [9]byte
	_, err = io.ReadFull(connection, head[:])
	return err == nil && head[3] == 4 && [5]byte(head[4:]) == [5]byte{}
}

package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/cli/command"
)

const summary = `Checks whether the server at ADDRESS is live. ADDRESS is that of its HTTP endpoint: ` + client.AddressHelp + `. The default is localhost:8000. The exit
status is 0 if the server is live, and 1 if it is not live or does not respond. With --ready, it lists models that are not ready or not loaded.`

const (
	livePath  = "/v2/health/live"
	readyPath = "/v2/health/ready"
)

// Run runs the command line that follows `nereid health` and returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	flags := command.Flags("health")
	ready := flags.Bool("ready", false, "check whether the server is ready (/v2/health/ready) instead of live (/v2/health/live)")
	limit := flags.Duration("timeout", 5*time.Second, "maximum wait for the reply")
	address := flags.String("url", "localhost:8000", "`ADDRESS` of the server's HTTP endpoint, as other commands take it")
	names, err := command.Parse(flags, args)
	switch {
	case err != nil:
	case len(names) > 1:
		err = command.Usagef("unexpected argument %q after the address", names[1])
	case len(names) == 1:
		*address = names[0]
	}
	if err == nil {
		path := livePath
		if *ready {
			path = readyPath
		}
		err = check(*address, path, *limit, stdout)
	}
	return command.End("nereid health", err, func(w io.Writer) { command.Usage(w, "nereid health [--ready] [ADDRESS]", summary, flags) }, stdout, stderr)
}

// check prints that the server says yes, or returns an error.
func check(address, path string, limit time.Duration, stdout io.Writer) error {
	at, err := client.ParseAddress(address)
	if err != nil {
		return command.Usagef("the address is %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	e := client.NewEndpoint(at, limit)
	defer e.Close()
	_, err = e.Ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return explain(ctx, e, path, err)
	}
	// The metrics endpoint answers 200 to any path, with nothing.
	if page, err := e.Ask(ctx, http.MethodGet, "/v2", nil); err == nil && len(page) == 0 {
		if text := at.Instead(ctx, false); text != "" {
			return fmt.Errorf("%s is %s", at, text)
		}
	}
	note := ""
	if path == readyPath {
		note = unready(ctx, e)
	}
	fmt.Fprintf(stdout, "%s%s: yes%s\n", at, path, note)
	return nil
}

// explain returns the error for a server that does not say yes.
func explain(ctx context.Context, e *client.Endpoint, path string, err error) error {
	var refused *client.Refusal
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return fmt.Errorf("%s%s: status 404, want 200; %s", e.Address, path, e.Want(false))
	case errors.As(err, &refused):
		note := ""
		if path == readyPath {
			note = unready(ctx, e)
		}
		return fmt.Errorf("%s%s: status %d, want 200%s", e.Address, path, refused.Status, note)
	case ctx.Err() == nil && !errors.As(err, new(client.DialError)):
		if text := e.Instead(ctx, false); text != "" {
			return fmt.Errorf("%s is %s", e.Address, text)
		}
	}
	return fmt.Errorf("%s: %w", e.Address, err)
}

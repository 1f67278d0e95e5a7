package top

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/cli/command"
)

const summary = `Shows models, instances, queues, rates, latencies, errors and the log of a running server, and loads, unloads and resizes models.`

// options are the parsed command line.
type options struct {
	server, metrics *client.Address // metrics is nil unless the user sets it
	header          http.Header
	interval        time.Duration
	once, json      bool
	sort, filter    string
}

// Run runs the command line that follows `nereid top`. It returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	flags := command.Flags("top")
	o, err := parse(flags, args)
	if err == nil {
		err = o.run(ctx, stdout)
	}
	usage := func(w io.Writer) { command.Usage(w, "nereid top [options]", summary, flags) }
	return command.End("nereid top", err, usage, stdout, stderr)
}

// parse reads the command line.
func parse(flags *flag.FlagSet, args []string) (*options, error) {
	o := &options{header: make(http.Header)}
	var server, metrics string
	flags.StringVar(&server, "url", "localhost:8000", "`ADDRESS` of the server's HTTP endpoint: "+client.AddressHelp)
	flags.StringVar(&metrics, "metrics-url", "", "`ADDRESS` of the server's metrics endpoint (default: the port that the server names, or else the port of --url plus 2)")
	flags.DurationVar(&o.interval, "interval", time.Second, "`TIME` between two updates, at least 100ms")
	flags.BoolVar(&o.once, "once", false, "print the state once as plain text; the default if the output is not a terminal")
	flags.BoolVar(&o.json, "json", false, "print the state once as JSON")
	command.Choice(flags, &o.sort, "sort", "model", "`COLUMN` to sort by: "+strings.Join(columnNames(), ", "), columnNames()...)
	flags.StringVar(&o.filter, "filter", "", "show only models whose name contains `TEXT`, and with --once and --json only log lines that contain it")
	flags.Func("header", "header `NAME:VALUE` of each request, for restricted endpoints; may be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return fmt.Errorf("got %q, want NAME:VALUE", text)
		}
		o.header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		return nil
	})
	rest, err := command.Parse(flags, args)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, command.Usagef("unexpected argument %q; use --url to select the server", rest[0])
	}
	if columnOf(o.sort) < 0 {
		return nil, command.Usagef("--sort is %q, want %s", o.sort, strings.Join(columnNames(), ", "))
	}
	if o.interval < 100*time.Millisecond {
		return nil, command.Usagef("--interval is %s, want at least 100ms", o.interval)
	}
	if o.server, err = client.ParseAddress(server); err != nil {
		return nil, command.Usagef("--url is %v", err)
	}
	if metrics == "" {
		return o, nil
	}
	if o.metrics, err = client.ParseAddress(metrics); err != nil {
		return nil, command.Usagef("--metrics-url is %v", err)
	}
	return o, nil
}

// errNoServer ends --once and --json if no server answers.
var errNoServer = errors.New("no server")

func (o *options) run(ctx context.Context, stdout io.Writer) error {
	p := newPoller(o)
	defer p.close()
	if !o.once && !o.json && command.IsTerminal(stdout) && command.IsTerminal(os.Stdin) {
		return watch(ctx, o, p)
	}
	v, err := p.twice(ctx, o.interval)
	if err != nil {
		return err
	}
	v.keep(o.filter)
	if o.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	}
	_, err = io.WriteString(stdout, plain(v, &ui{sort: columnOf(o.sort), filter: o.filter}))
	return err
}

// twice polls the server, and polls again if one poll yields no rates and percentiles.
func (p *poller) twice(ctx context.Context, interval time.Duration) (*View, error) {
	v := p.poll(ctx)
	if v.Lost == "" && !v.hasStatus {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(interval):
		}
		v = p.poll(ctx)
	}
	if v.Lost != "" {
		return nil, fmt.Errorf("%w answers at %s: %s", errNoServer, &p.options.server.URL, v.Lost)
	}
	return v, nil
}

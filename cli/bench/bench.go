package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/kserve"
)

const summary = `Sends requests to a model of a running server, with a fixed concurrency or at a fixed rate, and reports throughput, latencies,
and how the time was spent.`

// Run runs the command line that follows `nereid bench`. It returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := command.UntilSignal()
	defer stop()
	flags := command.Flags("bench")
	o, err := parse(flags, args)
	if err == nil {
		err = run(ctx, o, stdout, stderr)
	}
	usage := func(w io.Writer) { command.Usage(w, "nereid bench MODEL [options]", summary, flags) }
	return command.End("nereid bench", err, usage, stdout, stderr)
}

func run(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	var before *report
	if o.compare != "" {
		var err error
		if before, err = readReport(o.compare); err != nil {
			return err
		}
	}
	server, end, err := o.connect()
	if err != nil {
		return err
	}
	defer end()
	p := &prepared{options: o, server: server}
	t := newTarget(p)
	defer t.close()
	r := &report{
		Model: o.model, Version: o.version, URL: o.address.String(), Protocol: o.protocol, Batch: o.batch, SharedMemory: o.memory, Started: time.Now().Round(time.Second),
	}
	about, err := server.ServerMetadata(ctx, &kserve.ServerMetadataRequest{})
	if err == nil && about.GetName()+about.GetVersion() == "" && o.protocol == protocolHTTP {
		err = errors.New("the reply to GET /v2 names no server")
	}
	if err != nil {
		return fmt.Errorf("no server answers at %s over %s: %w", o.address, o.protocol, o.instead(ctx, err))
	}
	r.Server = about.GetName() + " " + about.GetVersion()
	config, err := server.ModelConfig(ctx, &kserve.ModelConfigRequest{Name: o.model, Version: o.version})
	if err != nil {
		return p.unserved(ctx, err)
	}
	p.model = config.GetConfig()
	if err := p.check(); err != nil {
		return err
	}
	if p.samples, err = makeSamples(o, p.model); err != nil {
		return err
	}
	if o.memory != "none" {
		if p.memory, err = newSharedMemory(o, p.model, p.samples, o.mostCallers()); err != nil {
			return err
		}
		defer p.memory.end(context.WithoutCancel(ctx), server)
		if err := p.memory.register(ctx, server); err != nil {
			return err
		}
	}
	for _, l := range o.levels {
		one, err := p.measure(ctx, t, l, stderr)
		if one != nil {
			r.Levels = append(r.Levels, one) // bound: the command line
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		if ctx.Err() != nil {
			break // shows the results so far
		}
	}
	return o.show(r, before, stdout)
}

// mostCallers returns the largest number of callers of any level.
func (o *options) mostCallers() int {
	most := 0
	for _, l := range o.levels {
		if l.Rate > 0 {
			return rateCallers
		}
		most = max(most, l.Concurrency)
	}
	return most
}

// check rejects options that the model does not support, and configs that would make requests huge.
func (p *prepared) check() error {
	if n := described(p.model); n > mostDescribed {
		return fmt.Errorf("the inputs and outputs of model %s take %d bytes to describe, want at most %d", p.options.model, n, mostDescribed)
	}
	inputs := p.model.GetInput()
	for i, input := range inputs {
		if slices.ContainsFunc(inputs[:i], func(o *kserve.ModelInput) bool { return o.GetName() == input.GetName() }) {
			return fmt.Errorf("the config of model %s has input %q twice", p.options.model, input.GetName())
		}
	}
	if p.model.GetModelTransactionPolicy().GetDecoupled() && p.options.protocol != protocolStream {
		return fmt.Errorf("model %s is decoupled and may send any number of responses: use --protocol stream", p.options.model)
	}
	if most := int64(p.model.GetMaxBatchSize()); most > 0 && p.options.batch > most {
		return fmt.Errorf("--batch is %d, but model %s accepts batches of at most %d", p.options.batch, p.options.model, most)
	}
	return nil
}

// instead explains an error that is caused by the address of another endpoint. It returns other
// errors unchanged.
func (o *options) instead(ctx context.Context, err error) error {
	text := o.address.Instead(ctx, o.protocol != protocolHTTP)
	switch {
	case text == "":
		return err
	case strings.HasPrefix(text, "a gRPC"):
		text += ", or use --protocol grpc"
	case strings.HasPrefix(text, "an HTTP"):
		text += ", or use --protocol http"
	}
	return errors.New("it is " + text)
}

// usualSequence is the default number of requests per sequence.
const usualSequence = 20

// measure runs one level.
func (p *prepared) measure(ctx context.Context, t target, l level, stderr io.Writer) (*row, error) {
	work := &load{level: l, target: t, samples: len(p.samples), sequence: p.options.sequence}
	if s := p.model.GetSequenceBatching(); work.sequence == 0 && s != nil && !s.GetIterativeSequence() {
		work.sequence = usualSequence
	}
	work.ids.Store(uint64(os.Getpid())<<20 | 1)
	which := &kserve.ModelStatisticsRequest{Name: p.options.model, Version: p.options.version}
	var before *kserve.ModelStatisticsResponse
	began := time.Now()
	line := newLine(stderr)
	found, seconds, err := work.run(ctx, p.options.warmUp, p.options.duration, func() {
		before, _ = p.server.ModelStatistics(ctx, which)
		began = time.Now()
	}, line.show)
	line.clear()
	if found == nil {
		return nil, err
	}
	r := rowOf(l, found, seconds, p.options.batch)
	if before != nil {
		if after, noAfter := p.server.ModelStatistics(context.WithoutCancel(ctx), which); noAfter == nil {
			r.Where = whereBetween(before.GetModelStats(), after.GetModelStats(), time.Since(began).Seconds())
		}
	}
	if r.Where != nil {
		r.Elsewhere = max(0, r.Latency.Mean-r.Where.Total)
	}
	return r, err
}

// show prints the results. The exit status is StatusTrouble if a request failed, or if none was
// answered.
func (o *options) show(r, before *report, stdout io.Writer) error {
	if len(r.Levels) == 0 {
		return errors.New("interrupted before anything was measured")
	}
	if o.json != "-" {
		r.write(stdout)
		if before != nil {
			r.compare(stdout, before)
		}
	}
	if o.json != "" {
		if err := r.writeJSON(o.json, stdout); err != nil {
			return err
		}
	}
	for _, l := range r.Levels {
		if l.Errors > 0 {
			return command.ErrTrouble
		}
		if l.Requests == 0 {
			return fmt.Errorf("no request was answered in %.1f s", l.Seconds)
		}
	}
	return nil
}

// line shows the progress of a measurement on a terminal.
type line struct {
	w     io.Writer // nil without a terminal
	shown bool
}

func newLine(w io.Writer) *line {
	if !command.IsTerminal(w) {
		return &line{}
	}
	return &line{w: command.File(w)}
}

func (l *line) show(work *load) {
	if l.w == nil {
		return
	}
	t := work.sum()
	phase := "warm-up"
	if since := now() - work.begin; since > 0 {
		phase = fmt.Sprintf("%3ds  %.0f requests/s", since/1e9, float64(t.requests)/(float64(since)/1e9))
	}
	q := quantilesOf(&t.latency)
	fmt.Fprintf(l.w, "\r\x1b[K%s  load %s  p50 %s  p99 %s  errors %d", phase, work.level, span(q.P50), span(q.P99), t.errors)
	l.shown = true
}

func (l *line) clear() {
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}

// Command soak serves several models to good and hostile clients at once, over HTTP and gRPC, with
// little memory, while it kills and stops model processes at random, loads and unloads models, and
// changes their number of instances. Each good request must get the right response or be rejected
// with 503 or UNAVAILABLE, unless it was inside a lost process. After the clients have gone, the
// server must have released their memory. After it has stopped, nothing may be left over.
//
// Run it in the root of the repository. It starts bin/nereid with bench/soak/models, prints a line
// every half minute and a summary, and exits with status 1 if it found a fault.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/encoding"

	"github.com/nereid-serving/nereid/bench/measure"
)

// settings are the flags.
type settings struct {
	binary, models, python, tokenizer string
	span                              time.Duration
	memory                            int64 // memory limit of the server and its models in bytes
	descriptors                       uint64
	seed                              uint64
	log, only                         string
}

func main() {
	s := settings{}
	flag.StringVar(&s.binary, "binary", "bin/nereid", "the server")
	flag.StringVar(&s.models, "models", "bench/soak/models", "its repository")
	flag.StringVar(&s.tokenizer, "tokenizer", "bench/soak/tokenizer", "its tokenizer")
	flag.StringVar(&s.python, "python", measure.NewestPython(), "its interpreter")
	flag.DurationVar(&s.span, "time", time.Minute, "how long the clients ask")
	flag.Int64Var(&s.memory, "memory", 1<<30, "limit of the control group, or where none can be made of its half for requests, bytes; 0: none")
	flag.Uint64Var(&s.descriptors, "descriptors", 1024, "the server's limit of descriptors; 0: as it is here")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "of everything that is drawn")
	flag.StringVar(&s.only, "only", "", "the hostile clients whose names contain this alone; nothing else happens then")
	flag.StringVar(&s.log, "log", "", "file for the server's output; default a temporary one, removed if nothing was wrong")
	flag.Parse()
	encoding.RegisterCompressor(asIs{})
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	wrong, err := s.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || wrong {
		os.Exit(1)
	}
}

// soak is one run.
type soak struct {
	settings
	server  *server
	results *results
	began   time.Time
	took    time.Duration // of the clients' part
}

// run reports whether it found a fault.
func (s settings) run(ctx context.Context) (wrong bool, err error) {
	fmt.Printf("soak: %v, seed %d\n", s.span, s.seed)
	k := &soak{settings: s, results: newResults()}
	k.server, err = startServer(ctx, s)
	if err != nil {
		return false, err
	}
	defer func() { k.server.clear(wrong || err != nil) }()
	if err := k.warm(ctx); err != nil {
		return false, err
	}
	k.storm(ctx, warmSpan, k.good())
	serving := k.server.look()
	k.results = newResults()
	before, err := k.server.rest(ctx, nil)
	if err != nil {
		return false, err
	}
	earlier, err := k.server.counters()
	if err != nil {
		return false, err
	}
	fmt.Printf("after good clients alone: %s\nat rest before: %s\n", serving, before)
	before.serving = serving.resident

	k.began = time.Now()
	k.storm(ctx, k.span, append(k.good(), k.others()...))
	k.took = time.Since(k.began)
	if ctx.Err() != nil {
		fmt.Println("interrupted: the summary covers the requests so far")
	}
	peak := k.server.peak()
	after, restErr := k.server.rest(context.WithoutCancel(ctx), &before)
	counters, countErr := k.server.counters()
	left, stopErr := k.server.stop()

	k.summary(before, peak, after, counters, earlier)
	for _, err := range []error{restErr, countErr, stopErr} {
		if err != nil {
			k.results.fault("%v", err)
		}
	}
	k.judge(before, after, counters, earlier, left)
	return k.results.verdict(), nil
}

// warmSpan is how long good clients use the server before the hostile ones start. The baseline for
// the comparison at the end is the server's RSS at the end of this span, and the rest of its usage
// a few seconds later.
const warmSpan = 10 * time.Second

// storm starts actors, ends them after the given time and waits for them.
func (k *soak) storm(parent context.Context, span time.Duration, actors []actor) {
	ctx, cancel := context.WithTimeout(parent, span)
	defer cancel()
	var all sync.WaitGroup
	number := uint64(0)
	for _, a := range actors {
		for range a.count {
			number++
			r := rand.New(rand.NewPCG(k.seed, number))
			all.Go(func() { a.act(ctx, r) })
		}
	}
	all.Go(func() { k.watch(ctx) })
	all.Wait()
}

// watch samples the server and prints the progress.
func (k *soak) watch(ctx context.Context) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	printed, counted := time.Now(), time.Now()
	kills := k.server.group.kills()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.server.Ended():
			k.results.fault("the server ended: %v", k.server.State())
			return
		case <-ticker.C:
		}
		now := k.server.sample()
		if n := k.server.group.kills(); n > kills {
			kills = n
			fmt.Printf("%5.0fs  the kernel has killed %d processes because memory ran out (see dmesg); %s\n", time.Since(k.began).Seconds(), n, now)
		}
		if time.Since(counted) >= time.Second {
			counted = time.Now()
			k.server.compare()
		}
		if time.Since(printed) >= 30*time.Second {
			printed = time.Now()
			fmt.Printf("%5.0fs  %s; %s\n", time.Since(k.began).Seconds(), k.results.line(), now)
		}
	}
}

// pause waits for a random time, and reports whether to continue.
func pause(ctx context.Context, r *rand.Rand, mean time.Duration) bool {
	t := time.NewTimer(mean/2 + time.Duration(r.Int64N(int64(mean))))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

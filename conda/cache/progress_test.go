package cache

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/rs/zerolog"
)

// TestTheLogHasTheProgress checks that progress is logged every five seconds and not after the end.
// It is internal because unpacking takes no fake time.
func TestTheLogHasTheProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Buffer{}
		c := &Cache{options: Options{Log: zerolog.New(log)}}
		var progress archive.Progress
		stop := c.report("unpacking environment", &source{path: "/m/env.tar.gz", id: identity{size: 400}}, &progress)
		time.Sleep(reportEvery - time.Nanosecond)
		synctest.Wait()
		if n := log.Count("unpacking"); n != 0 {
			t.Errorf("got %d lines before the time, want none", n)
		}
		progress.Read.Store(100)
		progress.Written.Store(1000)
		progress.Files.Store(7)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		const want = `{"level":"info","archive":"/m/env.tar.gz","bytes":100,"of":400,"files":7,"written":1000,"left":"15s","message":"unpacking environment"}`
		if got := strings.TrimSpace(log.String()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		time.Sleep(reportEvery)
		stop()
		if n := log.Count("unpacking"); n != 2 {
			t.Errorf("got %d lines after ten seconds, want two", n)
		}
		time.Sleep(10 * reportEvery)
		if n := log.Count("unpacking"); n != 2 {
			t.Errorf("got %d lines after the end, want two", n)
		}
	})
}

// TestTheRestIsEstimated is internal because the speed of unpacking varies.
func TestTheRestIsEstimated(t *testing.T) {
	for _, test := range []struct {
		read, size int64
		want       time.Duration
		ok         bool
	}{{0, 100, 0, false}, {25, 100, 30 * time.Second, true}, {100, 100, 0, true}, {101, 100, 0, false}} {
		if got, ok := remaining(10*time.Second, test.read, test.size); got != test.want || ok != test.ok {
			t.Errorf("%d of %d bytes in 10 s: got %v, %v, want %v, %v", test.read, test.size, got, ok, test.want, test.ok)
		}
	}
}

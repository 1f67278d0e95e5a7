package process

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
	"golang.org/x/sys/unix"
)

// lostReady is the loss of a stub that was ready but had not responded to a request.
var lostReady = loss{cause: Exited, started: true}

// TestBackoffGrowsWithLosses checks that pauses grow with consecutive losses, are bounded, and are
// reset after a healthy minute.
func TestBackoffGrowsWithLosses(t *testing.T) {
	var b backoff
	within := func(got, want time.Duration) bool { return got >= want*8/10 && got <= want*12/10 }
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000, 5000} {
		wait, hopeless := b.next(time.Second, lostReady)
		if !within(wait, want*time.Millisecond) || hopeless != (i+1 >= hopelessLosses) {
			t.Errorf("loss %d: got pause %v, hopeless %t, want about %vms", i, wait, hopeless, int64(want))
		}
	}
	if wait, hopeless := b.next(healthyAfter, lostReady); !within(wait, firstPause) || hopeless {
		t.Errorf("after a healthy minute: got pause %v, hopeless %t, want about %v", wait, hopeless, firstPause)
	}

	b = backoff{}
	for i := range 20 {
		wait, hopeless := b.next(time.Minute, loss{cause: Exited})
		if want := i+1 >= hopelessStarts; hopeless != want {
			t.Errorf("start %d that failed: got hopeless %t, want %t", i, hopeless, want)
		}
		if wait > longestStart*12/10 {
			t.Errorf("start %d that failed: got pause %v, want at most about %v", i, wait, longestStart)
		}
	}
	if _, hopeless := b.next(time.Second, lostReady); hopeless {
		t.Error("a stub that started and was lost is hopeless")
	}
}

// TestBackoffForgetsAfterAnAnswer checks that a life that has responded is followed by no pause,
// and that losses that are not the model's fault never make it hopeless.
func TestBackoffForgetsAfterAnAnswer(t *testing.T) {
	var b backoff
	for range 100 { // killed by someone else, every second
		if wait, hopeless := b.next(time.Second, loss{cause: Exited, started: true, served: true}); wait != 0 || hopeless {
			t.Fatalf("after a life that worked: got pause %v, hopeless %t, want none", wait, hopeless)
		}
	}
	for range 3 * hopelessLosses {
		b.next(0, lostReady)
	}
	b.next(0, loss{cause: TooLate, started: true, served: true})
	if wait, hopeless := b.next(0, lostReady); wait > 2*firstPause || hopeless {
		t.Errorf("after a life that worked: got pause %v, hopeless %t, want the first one", wait, hopeless)
	}
	for _, cause := range []Cause{OutOfMemory, OurFault} {
		for _, started := range []bool{true, false} {
			b = backoff{}
			last := time.Duration(0)
			for range 2 * hopelessLosses {
				wait, hopeless := b.next(0, loss{cause: cause, started: started})
				if hopeless {
					t.Fatalf("%s, started %t: hope is lost", cause, started)
				}
				last = wait
			}
			if last < time.Second {
				t.Errorf("%s, started %t: got pause %v, want one that has grown", cause, started, last)
			}
			if _, hopeless := b.next(0, lostReady); hopeless {
				t.Errorf("%s, started %t: hope is lost at the first loss that counts", cause, started)
			}
		}
	}
}

// TestErrorsTellTheCauseOfALoss checks the causes of losses according to their errors.
func TestErrorsTellTheCauseOfALoss(t *testing.T) {
	for _, test := range []struct {
		err  error
		want Cause
	}{
		{&launch.ExitError{Code: 1}, Exited},
		{&launch.ExitError{Code: -1, Signal: unix.SIGKILL}, Exited},
		{&launch.ExitError{Code: -1, Signal: unix.SIGKILL, OutOfMemory: true}, OutOfMemory},
		{&launch.ExitError{Code: exitNoMemory}, OutOfMemory},
		{fmt.Errorf("%w: %w", errNeverReady, &launch.ExitError{Code: exitConfused}), OurFault},
		{&panics.Error{Where: panics.Life}, OurFault},
		{ipc.Broken("frame", "cut"), BrokeProtocol},
		{&lateError{"execute did not return"}, TooLate},
		{fmt.Errorf("%w: %w", errNeverReady, &frames.Shortage{Client: infer.Errorf(infer.Unavailable, "no room"), Reason: fmt.Errorf("allocate: %w", shm.ErrExhausted)}), OutOfMemory},
		{fmt.Errorf("%w: %w", errNeverReady, os.NewSyscallError("pipe2", unix.EMFILE)), OutOfMemory},
		{fmt.Errorf("%w: %w", errNeverReady, &os.PathError{Op: "fork/exec", Err: unix.EAGAIN}), OutOfMemory},
		{&frames.Shortage{Client: infer.Errorf(infer.Internal, "Unable to initialize shared memory"), Reason: unix.ENFILE}, OutOfMemory},
		{fmt.Errorf("%w: %w", errNeverReady, infer.Errorf(infer.Internal, "ValueError: no")), Exited},
		{errors.New("process closed its end of the channel but is still running"), Exited},
	} {
		if got := causeOf(test.err); got != test.want {
			t.Errorf("%v: got cause %s, want %s", test.err, got, test.want)
		}
	}
}

// TestShortagesNameTheirRemedy checks that the error of a process that could not be started names
// the missing resource.
func TestShortagesNameTheirRemedy(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("make pipes: %w", unix.EMFILE), "ulimit -n"},
		{fmt.Errorf("make pipes: %w", unix.ENFILE), "ulimit -n"},
		{fmt.Errorf("%w: %w", errNeverReady, &os.PathError{Op: "fork/exec", Err: unix.EAGAIN}), "pids.max"},
		{fmt.Errorf("start: %w", unix.ENOMEM), "memory"},
		{errors.New("process closed its end of the channel but is still running"), ""},
		{&launch.ExitError{Code: 1}, ""},
	} {
		if got := shortage(test.err); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%v: got %q, want a text with %q", test.err, got, test.want)
		}
	}
}

// TestFiveQuickLossesAreHopeless checks that five losses within a minute make an instance hopeless,
// and only while they are that close.
func TestFiveQuickLossesAreHopeless(t *testing.T) {
	for name, test := range map[string]struct {
		lives []time.Duration // in seconds
		want  string          // per loss: h hopeless, - not
	}{
		"at once":              {[]time.Duration{0, 0, 0, 0, 0, 0}, "----hh"},
		"after a long life":    {[]time.Duration{3600, 1, 1, 1, 1, 1}, "----hh"},
		"the first does count": {[]time.Duration{59, 1, 1, 1, 1, 59, 1}, "----h--"},
		"every ten seconds":    {[]time.Duration{10, 10, 10, 10, 10, 10, 10, 10}, "----hhhh"},
		"every quarter":        {[]time.Duration{15, 15, 15, 15, 15, 15, 15}, "-------"},
		"healed by a minute":   {[]time.Duration{0, 0, 0, 0, 60, 0, 0, 0, 0}, "--------h"},
	} {
		var b backoff
		got := ""
		for _, lived := range test.lives {
			if _, hopeless := b.next(lived*time.Second, lostReady); hopeless {
				got += "h"
			} else {
				got += "-"
			}
		}
		if got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// TestAwaitSpinsWhileAnswersComeFast checks that await spins while responses are fast, and stops
// for a while after a slow yield.
func TestAwaitSpinsWhileAnswersComeFast(t *testing.T) {
	const budget = 50 * time.Microsecond
	var a awaitState
	if !a.worthwhile(budget) {
		t.Error("at first: not worthwhile")
	}
	if a.worthwhile(0) || a.worthwhile(-1) {
		t.Error("without a budget: worthwhile")
	}
	for range 40 {
		a.thought(int64(time.Second))
	}
	if a.worthwhile(budget) {
		t.Error("after slow answers: worthwhile")
	}
	for range 60 {
		a.thought(int64(time.Microsecond))
	}
	if !a.worthwhile(budget) {
		t.Error("after fast answers: not worthwhile")
	}
	for _, want := range []int{4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024} {
		a.spun(2 * slowYield)
		skipped := 0
		for !a.worthwhile(budget) {
			skipped++
		}
		if skipped != want {
			t.Errorf("after a slow yield: %d waits are slept through, want %d", skipped, want)
		}
	}
	for range cleanSpins {
		a.spun(0)
	}
	a.spun(2 * slowYield)
	if got := a.skip.Load(); got != 1024 {
		t.Errorf("after clean spins: %d waits are slept through, want 1024, twice the half", got)
	}
}

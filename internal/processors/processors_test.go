package processors

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// TestDecide checks how the number of processors follows the load. Each step repeats a load.
func TestDecide(t *testing.T) {
	busy := load{used: 0.9, idle: 0.05}
	type step struct {
		times int
		w     load
		want  int
	}
	for name, test := range map[string]struct {
		most  int
		steps []step
	}{
		"a busy machine needs one":             {4, []step{{9, busy, 4}, {1, busy, 3}, {10, busy, 2}, {10, busy, 1}, {100, busy, 1}}},
		"cores become idle":                    {4, []step{{30, busy, 1}, {1, load{used: 0.95, idle: 1}, 2}, {1, load{used: 1.9, idle: 1}, 4}, {1, load{used: 3.9, idle: 1}, 4}}},
		"an increase does not exceed the most": {3, []step{{20, busy, 1}, {1, load{used: 0.95, idle: 1}, 2}, {1, load{used: 1.9, idle: 1}, 3}}},
		"little work on an idle machine":       {2, []step{{9, load{used: 0.2, idle: 1}, 2}, {1, load{used: 0.2, idle: 1}, 1}}},
		"few goroutines are late":              {2, []step{{10, busy, 1}, {1, load{used: 0.5, idle: 1, waits: 100, late: 2}, 1}, {1, load{used: 0.5, idle: 1, waits: 1000, late: 100}, 1}}},
		"many goroutines are late":             {2, []step{{10, busy, 1}, {1, load{used: 0.9, waits: 20, late: 3}, 2}, {99, busy, 2}, {1, busy, 1}}},
		"work for all on an idle machine":      {4, []step{{1000, load{used: 3, idle: 1}, 4}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := controller{most: test.most, now: test.most, punctual: lateMemory}
			for i, s := range test.steps {
				got := 0
				for range s.times {
					got = c.decide(s.w)
				}
				if got != s.want {
					t.Errorf("after step %d: %d processors, want %d", i, got, s.want)
				}
			}
		})
	}
}

// TestLoadIsMeasured compares the measured load with an idle and a busy process.
func TestLoadIsMeasured(t *testing.T) {
	s := &sampler{}
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	var used float64
	for begin := time.Now(); time.Since(begin) < 100*time.Millisecond; {
		used++
	}
	w, err := s.next()
	if cores := float64(runtime.NumCPU()); err != nil || w.used <= 0 || w.used > cores+0.5 || w.idle < 0 || w.idle > cores+0.5 {
		t.Errorf("a busy process: got %+v and %v", w, err)
	}
}

// TestOnlyOneWaitsOnTheOnlyProcessor checks when a goroutine may keep its processor.
func TestOnlyOneWaitsOnTheOnlyProcessor(t *testing.T) {
	defer number.Store(number.Load())
	for _, test := range []struct {
		processors, waiting int
		want                bool
	}{{1, 0, true}, {1, 1, true}, {1, 2, false}, {2, 2, true}} {
		number.Store(int32(test.processors))
		for range test.waiting {
			Begin()
		}
		if got := MaySpin(); got != test.want {
			t.Errorf("%d processors, %d requests: got %v, want %v", test.processors, test.waiting, got, test.want)
		}
		for range test.waiting {
			End()
		}
	}
}

// busyLoop is set in the environment of processes that keep a core busy until their input ends.
const busyLoop = "NEREID_TEST_BUSY_LOOP"

func TestMain(m *testing.M) {
	if os.Getenv(busyLoop) != "" {
		go func() {
			_, _ = os.Stdin.Read(make([]byte, 1))
			os.Exit(0)
		}()
		for odd := uint32(1); odd != 0; odd += 2 { // never ends
			_ = odd
		}
	}
	os.Exit(m.Run())
}

// TestFollowReducesOnABusyMachine keeps every core busy with other processes.
func TestFollowReducesOnABusyMachine(t *testing.T) {
	most := Number()
	if most == 1 || os.Getenv("GOMAXPROCS") != "" {
		t.Skip("needs several processors")
	}
	defer func() {
		runtime.SetDefaultGOMAXPROCS()
		number.Store(0)
	}()
	for range runtime.NumCPU() {
		p := exec.Command(os.Args[0])
		p.Env = append(os.Environ(), busyLoop+"=1", "GOMAXPROCS=2")
		input, err := p.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = input.Close()
			_ = p.Wait()
		}()
	}
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan int)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Follow(ctx, func(now, of int) {
			if of != most || now != runtime.GOMAXPROCS(0) {
				t.Errorf("%d of %d processors are reported, %d of %d are in use", now, of, runtime.GOMAXPROCS(0), most)
			}
			select {
			case changes <- now:
			case <-ctx.Done():
			}
		})
	}()
	// The machine may have an idle core until the processes run.
	for now := most; now > 1; {
		select {
		case now = <-changes:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d processors are in use on a busy machine", now, most)
		}
	}
	cancel()
	<-ended
}

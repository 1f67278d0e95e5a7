// Command roundtrip measures round trips from the supervisor to a stub, for a model that returns
// its input, in Python and in Go. It compares them with the best that the machine can do: a
// ping-pong between two processes through pipes, and a copy of the same bytes. It also compares
// strings and parameters with the time that Python alone needs for the same conversions. Run it in
// the root of the repository.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

// settings are the flags.
type settings struct {
	python         string
	seconds        float64 // per row
	sizes, batches measure.Numbers
	native         bool // only backends in Go
	measure        bool // this process is one of the measuring ones
	echo           bool // this process is the other end of the ping-pong
}

func main() {
	if os.Getenv(ipc.PluginCookieKey) != "" {
		plugin.Serve(newPassOn)
	}
	s := settings{sizes: measure.Numbers{16, 64 << 10, 1 << 20, 16 << 20}, batches: measure.Numbers{1, 8}}
	flag.StringVar(&s.python, "python", "", "interpreter with numpy; default the newest of .venvs, else python3 on PATH")
	flag.Float64Var(&s.seconds, "seconds", 1, "how long each row is measured")
	flag.Var(&s.sizes, "sizes", "bytes of each tensor, multiples of 4")
	flag.Var(&s.batches, "batches", "requests in each batch")
	flag.BoolVar(&s.native, "native", false, "measure backends in Go alone, which needs no Python")
	flag.BoolVar(&s.measure, "measure", false, "measure as things are; without this, measure in each placement")
	flag.BoolVar(&s.echo, "echo", false, "answer doorbells; for the program itself")
	flag.Parse()
	if err := s.run(); err != nil {
		fmt.Fprintln(os.Stderr, "roundtrip:", err)
		os.Exit(1)
	}
}

func (s *settings) run() error {
	switch {
	case s.echo:
		return echo()
	case s.measure:
		return s.measureAll(time.Duration(s.seconds * float64(time.Second)))
	}
	if s.python == "" {
		s.python = measure.NewestPython()
	}
	// Child processes inherit the CPUs of the starting thread, so each placement has its own
	// process.
	runtime.LockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("ask for the processors: %w", err)
	}
	one := firstOf(&all)
	fmt.Printf("%d processors, %s\n", all.Count(), runtime.Version())
	for _, placement := range []struct {
		name string
		set  *unix.CPUSet
	}{
		{"On one processor", &one},
		{fmt.Sprintf("Where the kernel puts things, on %d processors", all.Count()), &all},
	} {
		if err := unix.SchedSetaffinity(0, placement.set); err != nil {
			return fmt.Errorf("choose processors: %w", err)
		}
		fmt.Printf("\n%s\n\n", placement.name)
		self := exec.Command(os.Args[0], "-measure", "-python", s.python, "-seconds", fmt.Sprint(s.seconds),
			"-sizes", s.sizes.String(), "-batches", s.batches.String(), "-native="+fmt.Sprint(s.native))
		self.Stdout, self.Stderr = os.Stdout, os.Stderr
		if err := self.Run(); err != nil {
			return err
		}
	}
	return nil
}

func firstOf(all *unix.CPUSet) (one unix.CPUSet) {
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			return one
		}
	}
	return one
}

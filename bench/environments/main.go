// Command environments measures the time to unpack a packed environment, next to tar with the
// installed decompression programs. It creates an archive of typical files, and unpacks it with
// each method in turn. Run it in the root of the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/bench/measure"
	"github.com/nereid-serving/nereid/conda/archive"
)

// settings are the flags.
type settings struct {
	directory, from string
	files           int
	bytes           int64
	rounds          int
	unpack          bool // this process unpacks one archive
}

func main() {
	s := settings{}
	flag.StringVar(&s.directory, "directory", "", "where archives are made and unpacked, default a temporary directory")
	flag.StringVar(&s.from, "from", "", "directory with files to pack, default the interpreter and the packages of the newest of .venvs")
	flag.IntVar(&s.files, "files", 20_000, "files in the archive")
	flag.Int64Var(&s.bytes, "bytes", 500_000_000, "bytes in the archive, before compression")
	flag.IntVar(&s.rounds, "rounds", 5, "how often each way unpacks each archive")
	flag.BoolVar(&s.unpack, "unpack", false, "unpack the first argument into the second; for the program itself")
	flag.Parse()
	run := s.run
	if s.unpack {
		run = func() error { return unpack(flag.Arg(0), flag.Arg(1)) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "environments:", err)
		os.Exit(1)
	}
}

// unpack uses our own code, in a separate process like tar's.
func unpack(path, into string) error {
	source, err := os.Open(path)
	if err != nil {
		return err
	}
	defer source.Close()
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	return archive.Unpack(context.Background(), source, root, archive.Options{})
}

// way is one way to unpack one archive.
type way struct {
	name    string
	needs   string // a program
	archive string
	command func(path, into string) []string
	wall    []time.Duration
	cpu     []time.Duration
}

func ways() []*way {
	tar := func(options ...string) func(path, into string) []string {
		return func(path, into string) []string {
			return append(append([]string{"tar"}, options...), "-xf", path, "-C", into)
		}
	}
	ours := func(path, into string) []string { return []string{os.Args[0], "-unpack", path, into} }
	return []*way{
		{name: "tar -xf", needs: "tar", archive: "env.tar", command: tar()},
		{name: "  Unpack", archive: "env.tar", command: ours},
		{name: "tar -xzf", needs: "gzip", archive: "env.tar.gz", command: tar("-z")},
		{name: "  tar -I pigz", needs: "pigz", archive: "env.tar.gz", command: tar("-I", "pigz")},
		{name: "  Unpack", archive: "env.tar.gz", command: ours},
		{name: "tar --zstd", needs: "zstd", archive: "env.tar.zst", command: tar("--zstd")},
		{name: "  Unpack", archive: "env.tar.zst", command: ours},
	}
}

func (s *settings) run() (err error) {
	if s.directory == "" {
		if s.directory, err = os.MkdirTemp("", "environments"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(s.directory)) }()
	}
	packed, err := s.pack()
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(ways(), func(w *way) bool {
		if w.needs == "" {
			return false
		}
		_, err := exec.LookPath(w.needs)
		return err != nil
	})
	for range s.rounds {
		// The ways take turns, so that a slow phase of the machine affects all of them.
		for _, w := range all {
			if err := s.measure(w); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%d processors, %s; %s\n\n", runtime.NumCPU(), runtime.Version(), packed)
	return table(all)
}

// measure unpacks once, into a new directory, and removes the files.
func (s *settings) measure(w *way) error {
	into, err := os.MkdirTemp(s.directory, "out")
	if err != nil {
		return err
	}
	unix.Sync() // writes back earlier changes, which should not count
	argv := w.command(filepath.Join(s.directory, w.archive), into)
	command := exec.Command(argv[0], argv[1:]...)
	command.Stderr = os.Stderr
	begin := time.Now()
	if err := command.Run(); err != nil {
		return fmt.Errorf("%v: %w", argv, err)
	}
	w.wall = append(w.wall, time.Since(begin))
	w.cpu = append(w.cpu, command.ProcessState.UserTime()+command.ProcessState.SystemTime())
	return os.RemoveAll(into)
}

// table prints the medians, each next to that of tar for the same archive.
func table(all []*way) error {
	var t measure.Table
	t.Row("ms", "median", "fastest", "CPU", "median / tar", "fastest / tar", "CPU / tar")
	var tar *way
	for _, w := range all {
		slices.Sort(w.wall)
		slices.Sort(w.cpu)
		row := []any{w.name, milliseconds(median(w.wall)), milliseconds(w.wall[0]), milliseconds(median(w.cpu))}
		if tar != nil && tar.archive == w.archive {
			row = append(row, share(median(w.wall), median(tar.wall)), share(w.wall[0], tar.wall[0]), share(median(w.cpu), median(tar.cpu)))
		} else {
			row[0] = fmt.Sprintf("%s %s", w.name, w.archive)
			tar = w
		}
		t.Row(row...)
	}
	return t.Write(os.Stdout)
}

func median(times []time.Duration) time.Duration { return times[len(times)/2] }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func share(a, b time.Duration) float64 { return float64(a) / float64(b) }

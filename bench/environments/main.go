// Command environments measures how long a packed environment takes to be unpacked,
// beside tar with the programs that are here for its compression. It makes an archive of
// files as environments have them, and unpacks it by each way in turns. It is run in the
// root of the repository.
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

// unpack is our way, in a process of its own, as tar's are.
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
	_, err = archive.Unpack(context.Background(), source, root, archive.Options{})
	return err
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
		// The ways take turns: a machine that is slow for a while is so for all.
		for _, w := range all {
			if err := s.measure(w); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%d processors, %s; %s\n\n", runtime.NumCPU(), runtime.Version(), packed)
	return table(all)
}

// measure unpacks once, into a new directory, and removes what was unpacked.
func (s *settings) measure(w *way) error {
	into, err := os.MkdirTemp(s.directory, "out")
	if err != nil {
		return err
	}
	unix.Sync() // what was removed and written before is not this way's
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

// table prints the medians, each beside that of tar for the same archive.
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

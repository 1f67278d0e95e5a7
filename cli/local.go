package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/devserver"
	"github.com/nereid-serving/nereid/cli/flags"
	"github.com/nereid-serving/nereid/cli/functions"
	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/server/connections"
)

const (
	serveName    = "serve"
	serveCall    = "nereid serve DIR|FILE.py [options]"
	serveSummary = `Serves the models in DIR, or the functions in FILE.py, for local development. Only this machine can connect, the server runs even if some models fail to load,
and the log is readable on a terminal.`
	serveHelp = `DIR contains a folder for each model. In FILE.py, functions with the decorator nereid.model are models (docs/functions.md).
Several of both may be given. Defaults that differ from nereid without a command:

  --http-address=127.0.0.1  --grpc-address=127.0.0.1
	0.0.0.0 listens on all interfaces; metrics use the HTTP address
  --exit-on-error=false
	the server serves the models that load, and lists the others

Often used: --http-port, --grpc-port, --metrics-port, --backend-config=python,python-executable=PATH, --log-verbose=1.
All options of the server are accepted; nereid --help lists them. See docs/serve.md.
`
)

// serveLocally is the command serve.
func serveLocally(args []string, getenv func(string) string, stdout, stderr io.Writer, extensions []nereid.Extension) int {
	o, err := flags.ParseServe(args, getenv, stderr)
	var syntax *flags.SyntaxError
	switch {
	case errors.Is(err, flags.ErrHelp):
		command.Show(stdout, command.Description{Call: serveCall, Summary: serveSummary, Flags: flags.Describe()}, serveHelp)
		return command.StatusOK
	case errors.Is(err, flags.ErrVersion):
		fmt.Fprintln(stdout, "nereid", version)
		return command.StatusOK
	case err != nil:
		hint := ""
		if errors.As(err, &syntax) && syntax.Hint != "" {
			hint = syntax.Hint + " "
		}
		fmt.Fprintf(stderr, "nereid serve: %v\n%ssee nereid serve --help\n", err, hint)
		return command.StatusUsage
	}
	for _, extend := range extensions {
		extend(&o.Options)
	}
	if err := errors.Join(checkFolders(o.Repository.Paths), checkFree(o)); err != nil {
		fmt.Fprintf(stderr, "nereid serve: %v\n", err)
		return command.StatusTrouble
	}
	closed, err := functions.Open(&o.Options, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "nereid serve: %v\n", err)
		return command.StatusTrouble
	}
	defer closed()
	return serve(o, getenv, stdout, stderr)
}

// waiting names the requests that shutdown waits for. It returns "" without requests in flight.
func waiting(o *flags.Options, requests map[*models.Info]int) string {
	sum := 0
	for _, n := range requests {
		sum += n
	}
	if sum == 0 {
		return ""
	}
	return waitingFor(o, fmt.Sprintf("%d %s to finish", sum, map[bool]string{true: "request", false: "requests"}[sum == 1]))
}

func waitingFor(o *flags.Options, what string) string {
	limit := int((max(o.ExitDelay, 0) + max(o.ExitTimeout, 0)).Seconds())
	return fmt.Sprintf("waiting up to %d s for %s; press Ctrl-C again to stop at once\n", limit, what)
}

// At shutdown, models are checked every endInterval. Those that take longer than endPatience are
// named, up to mostEnding of them.
const (
	endInterval = 100 * time.Millisecond
	endPatience = time.Second
	mostEnding  = 5
)

// tellOfEnd prints what delays shutdown: first requests in flight, then models that take long to
// finalize. It returns once it has printed both, or when the server has ended.
func tellOfEnd(o *flags.Options, ended context.Context, registry *models.Registry, w io.Writer) {
	fmt.Fprint(w, waiting(o, registry.InFlight()))
	look := time.NewTicker(endInterval)
	defer look.Stop()
	for looks := time.Duration(0); looks*endInterval < endPatience; {
		select {
		case <-ended.Done():
			return
		case <-look.C:
		}
		if len(registry.InFlight()) == 0 && len(ending(registry.Overview())) > 0 {
			looks++
		}
	}
	names := ending(registry.Overview())
	if len(names) == 0 {
		return
	}
	if more := len(names) - mostEnding; more > 0 {
		names = append(names[:mostEnding], fmt.Sprintf("%d more", more))
	}
	fmt.Fprint(w, waitingFor(o, strings.Join(names, ", ")+" to finalize"))
}

// ending returns the names of models with versions that are being unloaded.
func ending(versions []models.VersionStatus) (names []string) {
	for _, v := range versions {
		if v.State == string(catalog.Unloading) {
			names = append(names, v.Name)
		}
	}
	return slices.Compact(names)
}

// checkFolders rejects paths that are not model repositories.
func checkFolders(paths []string) error {
	for _, path := range paths {
		if strings.Contains(path, "://") || functions.IsFile(path) {
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return fmt.Errorf("the model repository: %w%s", err, remedyOf(err, path))
		}
		if absolute, err := filepath.Abs(path); err == nil && isModelVersion(absolute) {
			return fmt.Errorf("%s is a version directory, because it contains model.py, and not a model repository: use nereid serve %s", path, parentOf(parentOf(path)))
		}
		if file := markOfModel(path); file != "" {
			return fmt.Errorf("%s is a model, because it contains %s, and not a model repository: use nereid serve %s", path, file, parentOf(path))
		}
		if below := repositoryBelow(path, entries); below != "" {
			return fmt.Errorf("%s contains no model, but %s does: use nereid serve %s", path, below, below)
		}
	}
	return nil
}

// markOfModel returns the file or the directory that marks a directory as a model, or "".
func markOfModel(path string) string {
	entries, _ := os.ReadDir(path) // the server reports errors
	for _, e := range entries {
		if !e.IsDir() && e.Name() == "config.pbtxt" || e.IsDir() && isModelVersion(filepath.Join(path, e.Name())) {
			return e.Name()
		}
	}
	return ""
}

// repositoryBelow returns the first directory in path that contains models. It returns "" if path
// contains models itself.
func repositoryBelow(path string, entries []fs.DirEntry) (first string) {
	for _, e := range entries {
		below := filepath.Join(path, e.Name())
		if markOfModel(below) != "" {
			return ""
		}
		inner, _ := os.ReadDir(below)
		if first == "" && slices.ContainsFunc(inner, func(e fs.DirEntry) bool { return markOfModel(filepath.Join(below, e.Name())) != "" }) {
			first = below
		}
	}
	return first
}

// remedyOf suggests how to fix an unreadable repository, or returns "" if the error does.
func remedyOf(err error, path string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ": nereid serve needs the directory that contains the models' directories; nereid new model NAME creates a first model"
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Sprintf(": nereid serve needs the directory that contains the models' directories, such as %s/NAME/1/model.py", parentOf(path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf(": user %d is not allowed to list it", os.Geteuid())
	}
	return ""
}

// isModelVersion reports whether a directory has the name of a version and contains model.py.
func isModelVersion(path string) bool {
	versions, _ := config.PresentVersions([]string{filepath.Base(path)})
	_, err := os.Stat(filepath.Join(path, "model.py"))
	return err == nil && len(versions) > 0
}

func parentOf(path string) string {
	if filepath.IsLocal(path) && filepath.Clean(path) != "." {
		return filepath.Dir(filepath.Clean(path))
	}
	if absolute, err := filepath.Abs(path); err == nil {
		return filepath.Dir(absolute)
	}
	return filepath.Join(path, "..")
}

// checkFree finds occupied ports before models are loaded, which may take minutes.
func checkFree(o *flags.Options) error {
	for _, e := range o.Endpoints() {
		if _, unix := connections.UnixPath(e.Address); !e.On || !unix && (e.Port == 0 || e.Reuse) {
			continue
		}
		err := connections.CheckFree(e.Address, e.Port)
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%s cannot listen: %w: stop the program that uses the port, or choose another with --%s", e.Name, err, e.Flag)
		}
		if err != nil {
			return fmt.Errorf("%s cannot listen: %w", e.Name, err)
		}
	}
	return nil
}

// newProgress shows the startup on a terminal. It returns nil for other outputs.
func newProgress(lines *logs.Writer, out *logs.Console, getenv func(string) string) *devserver.Progress {
	if !lines.Interactive() {
		return nil
	}
	return devserver.NewProgress(out, logs.PaletteOf(out, getenv))
}

// addresses returns the last lines of an interactive startup.
func addresses(o *flags.Options, s *nereid.Server) string {
	var b strings.Builder
	ready := 0
	for _, m := range s.Registry().Attempted() {
		if m.Backend != "" || string(m.State) == "READY" {
			ready++
		}
	}
	fmt.Fprintf(&b, "\nserving %d %s; press Ctrl-C to stop\n", ready, map[bool]string{true: "model", false: "models"}[ready == 1])
	for _, e := range []struct {
		name, scheme, path string
		at                 net.Addr
	}{
		{"page", "http://", "", s.PageAddr()},
		{"HTTP", "http://", "", s.HTTPAddr()},
		{"HTTPS", "https://", "", s.HTTPSAddr()},
		{"gRPC", "", "", s.GRPCAddr()},
		{"OpenAI", "http://", "/v1", s.OpenAIAddr()},
		{"metrics", "http://", "/metrics", s.MetricsAddr()},
	} {
		if e.at != nil {
			where := e.scheme + e.at.String() + e.path
			if e.at.Network() == "unix" {
				where = "unix:" + e.at.String()
			}
			fmt.Fprintf(&b, "  %-8s %s\n", e.name, where)
		}
	}
	if len(s.Registry().Attempted()) == 0 {
		b.WriteString(firstModel(o))
	}
	return b.String()
}

// firstModel explains how to create a first model. It returns "" if the repository is remote or
// clients load models.
func firstModel(o *flags.Options) string {
	for _, path := range o.Repository.Paths {
		entries, err := os.ReadDir(path)
		if err != nil || o.Repository.Control == nereid.ControlExplicit || slices.ContainsFunc(entries, os.DirEntry.IsDir) {
			return ""
		}
	}
	path, again := o.Repository.Paths[0], "; then start the server again"
	if o.Repository.Develop || o.Repository.Control == nereid.ControlPoll {
		again = ""
	}
	return fmt.Sprintf("\nthere is no model in %s: create one with nereid new model NAME --directory %s%s\n", path, path, again)
}

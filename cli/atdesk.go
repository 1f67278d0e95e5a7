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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/devserver"
	"github.com/nereid-serving/nereid/cli/flags"
	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/config"
)

const (
	serveName    = "serve"
	serveCall    = "nereid serve DIR [options]"
	serveSummary = `Serves the models in DIR, for a person at a desk: to this machine alone, also if some of them do not load, and with a log to
read where the output is a terminal.`
	serveHelp = `DIR has a folder for each model; several may be given. Defaults that differ from those of nereid without a command:

  --http-address=127.0.0.1  --grpc-address=127.0.0.1
	0.0.0.0 is for all machines; the metrics are where HTTP is
  --exit-on-error=false
	models that load are served, the others are named

Often used: --http-port, --grpc-port, --metrics-port, --backend-config=python,python-executable=PATH, --log-verbose=1.
All options of the server can be given: nereid --help lists them. docs/serve.md says more.
`
)

// serveAtDesk is the command serve.
func serveAtDesk(args []string, getenv func(string) string, stdout, stderr io.Writer, extensions []nereid.Extension) int {
	o, err := flags.ParseAtDesk(args, getenv, stderr)
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
		fmt.Fprintf(stderr, "nereid serve: %v\n%snereid serve --help says more\n", err, hint)
		return command.StatusUsage
	}
	for _, extend := range extensions {
		extend(&o.Options)
	}
	if err := errors.Join(checkFolders(o.Repository.Paths), checkFree(o)); err != nil {
		fmt.Fprintf(stderr, "nereid serve: %v\n", err)
		return command.StatusTrouble
	}
	return serve(o, getenv, stdout, stderr)
}

// waiting says what the end of the server waits for; it is empty where that is nothing.
func waiting(o *flags.Options, requests map[*models.Info]int) string {
	sum := 0
	for _, n := range requests {
		sum += n
	}
	if sum == 0 {
		return ""
	}
	return waitingFor(o, fmt.Sprintf("%d %s to end", sum, map[bool]string{true: "request", false: "requests"}[sum == 1]))
}

func waitingFor(o *flags.Options, what string) string {
	limit := int((max(o.ExitDelay, 0) + max(o.ExitTimeout, 0)).Seconds())
	return fmt.Sprintf("waiting up to %d s for %s; Ctrl-C again ends the server at once\n", limit, what)
}

// At the end of the server models are looked at every endInterval; those that take longer than endPatience are named, and of
// many the first mostEnding.
const (
	endInterval = 100 * time.Millisecond
	endPatience = time.Second
	mostEnding  = 5
)

// tellOfEnd says what the end of the server waits for: the requests, and when these are over, models that take long to end.
// It returns when it has said so, or the server has ended.
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

// ending are the names of models with versions that are being unloaded.
func ending(versions []models.VersionStatus) (names []string) {
	for _, v := range versions {
		if v.State == string(catalog.Unloading) {
			names = append(names, v.Name)
		}
	}
	return slices.Compact(names)
}

// checkFolders refuses what cannot be a repository.
func checkFolders(paths []string) error {
	for _, path := range paths {
		if strings.Contains(path, "://") {
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return fmt.Errorf("the folder of models: %w%s", err, remedyOf(err, path))
		}
		if versions, _ := config.PresentVersions([]string{filepath.Base(path)}); len(versions) > 0 && isModelVersion(path) {
			return fmt.Errorf("%s is the folder of a version, since it has model.py, and not a folder of models: give the one that its model lies in, %s", path, parentOf(parentOf(path)))
		}
		for _, e := range entries {
			versions, _ := config.PresentVersions([]string{e.Name()})
			if !e.IsDir() && e.Name() == "config.pbtxt" || e.IsDir() && len(versions) > 0 && isModelVersion(filepath.Join(path, e.Name())) {
				return fmt.Errorf("%s is a model, since it has %s, and not a folder of models: give the one that it lies in, %s", path, e.Name(), parentOf(path))
			}
		}
	}
	return nil
}

// remedyOf is what to do when a folder of models cannot be read, behind the error; empty where the error says it.
func remedyOf(err error, path string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ": nereid serve takes the folder that the folders of the models lie in; nereid new model NAME writes a first one"
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Sprintf(": nereid serve takes the folder that the folders of the models lie in, as %s/NAME/1/model.py", parentOf(path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf(": user %d may not list it", os.Geteuid())
	}
	return ""
}

func isModelVersion(path string) bool {
	_, err := os.Stat(filepath.Join(path, "model.py"))
	return err == nil
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

// checkFree finds ports that are taken before models are loaded, which may take minutes.
func checkFree(o *flags.Options) error {
	for _, e := range o.Endpoints() {
		if !e.On || e.Port == 0 || e.Reuse {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(e.Address, strconv.Itoa(e.Port)))
		if err != nil {
			return fmt.Errorf("%s cannot be served: %w: end the program that has the port, or choose another by --%s", e.Name, err, e.Flag)
		}
		_ = listener.Close()
	}
	return nil
}

// newProgress shows the startup on a terminal. It returns nil if the output is not one.
func newProgress(lines *logs.Writer, out *logs.Console, getenv func(string) string) *devserver.Progress {
	if !lines.AtDesk() {
		return nil
	}
	return devserver.NewProgress(out, logs.PaletteOf(out, getenv))
}

// addresses are the last lines of a start at a desk.
func addresses(o *flags.Options, s *nereid.Server) string {
	var b strings.Builder
	ready := 0
	for _, m := range s.Registry().Attempted() {
		if m.Backend != "" || string(m.State) == "READY" {
			ready++
		}
	}
	fmt.Fprintf(&b, "\nserving %d %s; Ctrl-C ends it\n", ready, map[bool]string{true: "model", false: "models"}[ready == 1])
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
			fmt.Fprintf(&b, "  %-8s %s%s%s\n", e.name, e.scheme, e.at, e.path)
		}
	}
	if len(s.Registry().Attempted()) == 0 {
		b.WriteString(firstModel(o))
	}
	return b.String()
}

// firstModel says how a folder without models gets one; it is empty where that is no matter of files here, or where clients load models.
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
	return fmt.Sprintf("\nthere is no model in %s: nereid new model NAME --directory %s writes a first one%s\n", path, path, again)
}

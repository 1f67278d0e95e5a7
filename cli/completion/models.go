package completion

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/cli/client"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
)

// usualServer is the default server of commands that take a model.
const usualServer = "localhost:8000"

// Limits on the wait for a server, and on the names offered.
const (
	askLimit = 500 * time.Millisecond
	maxNames = 1000
)

// plain matches names that no shell interprets.
var plain = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]*$`)

// names lists the possible models in order.
func (w *wanted) names() []string {
	for _, directory := range w.directories {
		if names := namesIn(directory); len(names) > 0 {
			return names
		}
	}
	if w.url == "" {
		return nil
	}
	return namesAt(w.url)
}

// namesIn lists the models of a directory: subdirectories with a configuration, a version or
// records.
func namesIn(directory string) (names []string) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if len(names) == maxNames {
			break
		}
		if !plain.MatchString(e.Name()) {
			continue
		}
		inside, err := os.ReadDir(filepath.Join(directory, e.Name())) // a link may lead to a directory
		if err == nil && slices.ContainsFunc(inside, func(e os.DirEntry) bool {
			return e.Name() == "config.pbtxt" || strings.HasSuffix(e.Name(), ".record") || isVersion(e.Name())
		}) {
			names = append(names, e.Name())
		}
	}
	return names
}

func isVersion(name string) bool { return strings.Trim(name, "0123456789") == "" }

// namesAt lists the models of a server.
func namesAt(url string) (names []string) {
	at, err := client.ParseAddress(url)
	if err != nil {
		return nil
	}
	e := client.NewEndpoint(at, askLimit)
	defer e.Close()
	index, err := grpcservice.NewGRPCInferenceServiceClient(e).RepositoryIndex(context.Background(), &kserve.RepositoryIndexRequest{})
	if err != nil {
		return nil
	}
	for _, model := range index.GetModels() {
		if plain.MatchString(model.GetName()) {
			names = append(names, model.GetName())
		}
	}
	slices.Sort(names)
	names = slices.Compact(names) // one per version
	return names[:min(len(names), maxNames)]
}

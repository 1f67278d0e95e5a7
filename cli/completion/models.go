package completion

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// usualServer is the default server of commands that take a model.
const usualServer = "localhost:8000"

// Limits on the wait for a server, on the bytes read from its index, and on the names offered.
const (
	askLimit = 500 * time.Millisecond
	maxIndex = 4 << 20
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
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	return namesAt(ctx, w.url)
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
func namesAt(ctx context.Context, url string) (names []string) {
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(url, "/")+"/v2/repository/index", bytes.NewReader([]byte("{}")))
	if err != nil {
		return nil
	}
	reply, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return nil
	}
	defer reply.Body.Close()
	var index []struct{ Name string }
	if json.NewDecoder(io.LimitReader(reply.Body, maxIndex)).Decode(&index) != nil || reply.StatusCode != http.StatusOK {
		return nil
	}
	for _, model := range index {
		if plain.MatchString(model.Name) {
			names = append(names, model.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names) // one per version
	return names[:min(len(names), maxNames)]
}

package functions

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/panics"
)

// Open replaces the Python files among the repository's paths with directories of their models.
// With Develop, these follow changes of the files. closed ends that and removes the directories.
func Open(server *nereid.Options, stderr io.Writer) (closed func(), err error) {
	closed = func() {}
	paths := server.Repository.Paths
	if !slices.ContainsFunc(paths, IsFile) {
		return closed, nil
	}
	directory, err := os.MkdirTemp("", "nereid-functions-")
	if err != nil {
		return closed, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	closed = func() {
		cancel()
		watching.Wait()
		os.RemoveAll(directory)
	}
	defer func() {
		if err != nil {
			closed()
			closed = func() {}
		}
	}()
	server.Repository.Paths = slices.Clone(paths)
	settings := server.BackendSettings("python")
	var mu sync.Mutex             // one build at a time; guards models
	models := map[string]string{} // the files by the names of their models
	build := func(file, output string) (*Built, error) {
		mu.Lock()
		defer mu.Unlock()
		others := maps.Clone(models)
		maps.DeleteFunc(others, func(_, of string) bool { return of == file })
		built, err := Build(ctx, settings, file, output, Refer, others, stderr)
		if err == nil {
			models = others
			for _, name := range built.Models {
				models[name] = file
			}
		}
		return built, err
	}
	for i, file := range paths {
		if !IsFile(file) {
			continue
		}
		if file, err = filepath.Abs(file); err != nil {
			return closed, err
		}
		output := filepath.Join(directory, strconv.Itoa(i))
		server.Repository.Paths[i] = output
		read := time.Now()
		built, err := build(file, output)
		if err != nil {
			return closed, err
		}
		for _, warning := range built.Warnings {
			fmt.Fprintln(stderr, "warning:", warning)
		}
		if !server.Repository.Develop {
			continue
		}
		watching.Go(panics.Guard(zerolog.Nop(), panics.Life, func() {
			Watch(ctx, built.Files, read, func() []string {
				again, err := build(file, output)
				if ctx.Err() == nil && err != nil {
					fmt.Fprintln(stderr, err)
				}
				if err == nil {
					built = again
				}
				return built.Files
			})
		}, func(err error) { fmt.Fprintln(stderr, err) }))
	}
	return closed, nil
}

package grpc

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
)

func noRepository(name string) error {
	if name != "" {
		return server.ErrRepositoryName
	}
	return nil
}

func (g *FrontEnd) repositoryIndex(_ context.Context, q *kserve.RepositoryIndexRequest) (*kserve.RepositoryIndexResponse, error) {
	if err := noRepository(q.GetRepositoryName()); err != nil {
		return nil, err
	}
	if _, err := g.parts.Core.Live(); err != nil {
		return nil, err
	}
	list, err := g.parts.Core.Index(q.GetReady())
	return &kserve.RepositoryIndexResponse{Models: list}, err
}

// repositoryModelLoad returns the method. A load goes on, until life ends, if the client
// disconnects.
func (g *FrontEnd) repositoryModelLoad(life context.Context) func(context.Context, *kserve.RepositoryModelLoadRequest) (*kserve.RepositoryModelLoadResponse, error) {
	return func(_ context.Context, q *kserve.RepositoryModelLoadRequest) (*kserve.RepositoryModelLoadResponse, error) {
		if err := noRepository(q.GetRepositoryName()); err != nil {
			return nil, err
		}
		config, files, err := loadParameters(q.GetParameters())
		if err != nil {
			return nil, err
		}
		return &kserve.RepositoryModelLoadResponse{}, g.parts.Core.Load(life, q.GetModelName(), config, files)
	}
}

func loadParameters(params map[string]*kserve.ModelRepositoryParameter) (config string, files map[string][]byte, err error) {
	for _, key := range slices.Sorted(maps.Keys(params)) {
		choice := params[key].GetParameterChoice()
		switch path, file := strings.CutPrefix(key, server.FilePrefix); {
		case key == "config":
			text, ok := choice.(*kserve.ModelRepositoryParameter_StringParam)
			if !ok {
				return "", nil, infer.Errorf(infer.InvalidArg, "invalid value type for load parameter '%s', expected string_param.", key)
			}
			config = cmp.Or(text.StringParam, server.EmptyConfig)
		case file:
			content, ok := choice.(*kserve.ModelRepositoryParameter_BytesParam)
			if !ok {
				return "", nil, infer.Errorf(infer.InvalidArg, "invalid value type for load parameter '%s', expected bytes_param.", key)
			}
			if files == nil {
				files = map[string][]byte{} // bound: budget.Limits.LoadFiles
			}
			files[path] = content.BytesParam // bound: budget.Limits.LoadFiles
		default:
			return "", nil, infer.Errorf(infer.InvalidArg, "unrecognized load parameter '%s'.", key)
		}
	}
	return config, files, nil
}

func (g *FrontEnd) repositoryModelUnload(life context.Context) func(context.Context, *kserve.RepositoryModelUnloadRequest) (*kserve.RepositoryModelUnloadResponse, error) {
	return func(_ context.Context, q *kserve.RepositoryModelUnloadRequest) (*kserve.RepositoryModelUnloadResponse, error) {
		if err := noRepository(q.GetRepositoryName()); err != nil {
			return nil, err
		}
		dependents := false
		const key = "unload_dependents"
		if p, ok := q.GetParameters()[key]; ok {
			choice, ok := p.GetParameterChoice().(*kserve.ModelRepositoryParameter_BoolParam)
			if !ok {
				return nil, infer.Errorf(infer.InvalidArg, "invalid value type for '%s' parameter, expected bool_param.", key)
			}
			dependents = choice.BoolParam
		}
		return &kserve.RepositoryModelUnloadResponse{}, g.parts.Core.Unload(life, q.GetModelName(), dependents)
	}
}

package rest

import (
	"testing"

	"github.com/nereid-serving/nereid/server/clientshm"
)

func TestRouteFindsTheEndpoint(t *testing.T) {
	for path, want := range map[string]target{
		"/v2":                                   {endpoint: epServerMetadata},
		"/v2/models/stats":                      {endpoint: epModelStatistics},
		"/v2/models/stats/versions/1":           {endpoint: epModelMetadata, model: "stats", version: "1"},
		"/v2/models/stats/infer":                {endpoint: epInfer, model: "stats"},
		"/v2/models/m/versions/01/infer":        {endpoint: epInfer, model: "m", version: "01"},
		"/v2/models/a%20b%2Fc/ready":            {endpoint: epModelReady, model: "a b/c"},
		"/v2/models/a%zz":                       {endpoint: epModelMetadata, model: "a%zz"},
		"/v2/models/versions/1":                 {},
		"/v2/models/m/versions/":                {},
		"/v2/models/m/versions/1x":              {},
		"/v2/models/m/versions/1/":              {},
		"/v2/models/m/":                         {},
		"/v2/models//infer":                     {},
		"/v2/models":                            {},
		"/v2x":                                  {},
		"/v2/repository/index":                  {endpoint: epRepositoryIndex},
		"/v2/repository/r/index":                {endpoint: epRepositoryIndex},
		"/v2/repository/r/s/index":              {},
		"/v2/repository/models/m/load":          {endpoint: epRepositoryLoad, model: "m"},
		"/v2/repository/r/models/m/unload":      {endpoint: epRepositoryUnload, model: "m", repository: "r"},
		"/v2/repository/models/models/m/unload": {endpoint: epRepositoryUnload, model: "m", repository: "models"},
		"/v2/repository/models/m/instances":     {endpoint: epRepositoryInstances, model: "m"},
		"/v2/repository/r/models/m/instances":   {endpoint: epRepositoryInstances, model: "m", repository: "r"},
		"/v2/repository/models/m/reload":        {},
		"/v2/repository//models/m/load":         {},
		"/v2/systemsharedmemory/status":         {endpoint: epRegionStatus, kind: clientshm.System},
		"/v2/cudasharedmemory/region/r/status":  {endpoint: epRegionStatus, kind: clientshm.CUDA, region: "r"},
		"/v2/cudasharedmemory/register":         {endpoint: epRegionRegister, kind: clientshm.CUDA},
		"/v2/systemsharedmemory/unregister":     {endpoint: epRegionUnregister, kind: clientshm.System},
		"/v2/trace/setting":                     {endpoint: epTrace},
		"/v2/models/m/trace/setting":            {endpoint: epTrace, model: "m"},
		"/v2/models/m/versions/1/trace/setting": {},
		"/v2/models/m/versions/1/generate":      {endpoint: epGenerate, model: "m", version: "1"},
		"/v2/systemsharedmemory/region//status": {},
		"/v2/systemsharedmemory/region/status":  {},
		"/v2/systemsharedmemory/region/r/x":     {},
		"/v2/systemsharedmemory":                {},
	} {
		if got := route(path); got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
}

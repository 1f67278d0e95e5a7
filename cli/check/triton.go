package check

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/models"
)

// ownParameters are parameters of models that Triton ignores.
var ownParameters = []string{"AS_NUMPY_ON_GPU", "ASYNC_EXECUTE_OVERLAP", "BATCH_MODE", "BATCH_PAD_VALUE", "BATCH_RAGGED", "BATCH_STRATEGY", "MAX_BATCH_VOLUME_BYTES"}

var (
	ownCode       = regexp.MustCompile(`(?m)^[^#\n]*(\bnereid_testing\b|\bawait\s+[\w.]+\.cancelled\(\))`)
	numberedName  = regexp.MustCompile(`^[1-9][0-9]*`)
	gzipSignature = []byte{0x1f, 0x8b}
)

// triton reports differences from Triton for a model.
func (c *check) triton(e *models.Examined, source []byte) {
	known := e.Description.Config
	differs := func(rule, file string, line int, text, remedy string) {
		c.report.add(finding{Severity: severityTriton, Rule: rule, Model: e.Identity.String(), File: file, Line: line, Text: text, Remedy: remedy})
	}
	here := func(rule, field, text, remedy string) {
		file, line := c.lineOf(e, source, field)
		differs(rule, file, line, text, remedy)
	}
	for _, name := range ownParameters {
		if _, named := known.GetParameters()[name]; named {
			here("triton-parameter", "'"+name+"'", "Triton ignores the parameter "+name, "the model behaves there as without it")
		}
	}
	if p, named := known.GetParameters()["EXECUTION_ENV_PATH"]; named {
		if text := environmentText(p.GetStringValue(), e.Description.Directory); text != "" {
			here("triton-environment", "'EXECUTION_ENV_PATH'", text, "Triton needs an archive of conda-pack, with the Python that its stub was built for")
		}
	}
	if known.GetModelMetrics() != nil {
		here("triton-config", "model_metrics", "Triton 24.10 does not support the field model_metrics and would fail to load the model", "newer versions do")
	}
	if known.GetEnsembleScheduling().GetMaxInflightRequests() > 0 {
		here("triton-config", "max_inflight_requests", "Triton 24.10 does not support the field max_inflight_requests and would fail to load the model", "newer versions do")
	}
	if c.options.server.Backends.Linked[known.GetBackend()] != nil {
		here("triton-backend", "backend", "the backend '"+known.GetBackend()+"' is linked into this server", "Triton needs a libtriton_"+known.GetBackend()+".so")
	}
	for _, number := range e.Description.Versions {
		if v := e.Versions[number]; v.Plugin != "" {
			here("triton-backend", "backend", "the backend '"+known.GetBackend()+"' is the program "+v.Plugin, "Triton needs a libtriton_"+known.GetBackend()+".so")
		}
		if path := scriptOf(e, number); path != "" {
			text := readStart(path)
			for _, at := range ownCode.FindAllSubmatchIndex(text, 4) {
				differs("triton-code", path, bytes.Count(text[:at[2]], []byte("\n"))+1, string(text[at[2]:at[3]])+" does not exist in Triton", "guard it if the model should also run there")
			}
		}
	}
	entries, err := os.ReadDir(e.Directory)
	if err != nil {
		return
	}
	for _, entry := range entries {
		digits := numberedName.FindString(entry.Name())
		if n, err := strconv.ParseInt(digits, 10, 64); entry.IsDir() && err == nil && digits != entry.Name() && !slices.Contains(e.Description.Versions, n) {
			differs("triton-version", filepath.Join(e.Directory, entry.Name()), 0, "Triton reads this directory as version "+digits+", which does not exist, and would fail to load the model", "rename the directory")
		}
	}
}

// environmentText says why Triton would reject an execution environment, or returns "".
func environmentText(value, directory string) string {
	envPath, err := conda.Locate(value, directory)
	if err != nil {
		return "" // it is rejected here as well
	}
	switch envPath.Kind {
	case conda.Archive:
		if !bytes.HasPrefix(readStart(envPath.Path), gzipSignature) {
			return "Triton unpacks only gzipped archives, and " + value + " is not one"
		}
	case conda.Directory:
		if !isFile(filepath.Join(envPath.Path, "bin", "activate")) {
			return "Triton rejects the environment " + value + ", which has no bin/activate"
		}
	default:
		return "Triton rejects " + value + ", which is a program: it needs an archive or the directory of an environment"
	}
	return ""
}

// folders reports folders of repositories that are models in Triton but not here.
func (c *check) folders(paths []string) {
	for _, path := range paths {
		entries, err := os.ReadDir(path)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if !e.IsDir() || e.Name() != "__pycache__" && !strings.HasPrefix(e.Name(), ".") {
				continue
			}
			if slices.ContainsFunc(c.found, func(x *models.Examined) bool { return x.Identity.Name == e.Name() }) {
				continue
			}
			c.report.add(finding{
				Severity: severityTriton, Rule: "triton-folder", File: filepath.Join(path, e.Name()),
				Text: "Triton treats each directory as a model and would not start", Remedy: "move it out of the repository",
			})
		}
	}
}

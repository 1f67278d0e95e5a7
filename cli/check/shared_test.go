package check

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/infer"
)

// RunCheck runs the command with the server's defaults. It returns the status, the findings as
// lines with paths relative to the repository, and the error output.
func RunCheck(t *testing.T, directory string, args ...string) (status int, lines []string, stderr string) {
	t.Helper()
	var out, err strings.Builder
	status = Run(append([]string{directory}, args...), func(own *flag.FlagSet, args []string) ([]string, nereid.Options, error) {
		names, err := command.Parse(own, args)
		return names, nereid.Defaults(), err
	}, &out, &err)
	text := strings.ReplaceAll(out.String(), directory+"/", "")
	return status, strings.Split(strings.TrimSpace(text), "\n"), err.String()
}

const (
	Two = "backend: \"python\"\ninput { name: \"A\" data_type: TYPE_FP32 dims: [ 2 ] }\n" +
		"output { name: \"B\" data_type: TYPE_FP32 dims: [ 2 ] }\n"
	Script = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
	Chain  = "platform: \"ensemble\"\ninput { name: \"A\" data_type: TYPE_FP32 dims: [ 2 ] }\noutput { name: \"B\" data_type: TYPE_FP32 dims: [ 2 ] }\n" +
		"ensemble_scheduling { step {\n model_name: \"good\" model_version: -1\n input_map { key: \"A\" value: \"A\" }\n output_map { key: \"B\" value: \"B\" } } }\n"
)

// RequestIn reads the request in a file.
func RequestIn(path string) (*infer.Request, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return readRequest(text, path, "m")
}

package cli

import (
	"path/filepath"
	"strings"
)

func NoEnv(string) string { return "" }

// RunHere runs the program as tritonserver and returns its status and output, with the usage
// replaced by "<usage>".
func RunHere(args ...string) (status int, stdout, stderr string) {
	return RunAs("/usr/local/bin/tritonserver", args...)
}

// RunAs is RunHere with another program name.
func RunAs(program string, args ...string) (status int, stdout, stderr string) {
	var out, err strings.Builder
	status = run(append([]string{program}, args...), NoEnv, &out, &err)
	var usage strings.Builder
	writeUsage(&usage, filepath.Base(program))
	return status, out.String(), strings.ReplaceAll(err.String(), usage.String(), "<usage>\n")
}

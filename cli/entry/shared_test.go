package entry

import "testing"

func MachineWith(t *testing.T, variables map[string]string) Machine {
	t.Helper()
	return Machine{Getenv: func(name string) string { return variables[name] }, Root: t.TempDir()}
}

// sageMakerFlags are the flags of every start.
var sageMakerFlags = []string{"--allow-sagemaker=true", "--allow-http=false", "--model-control-mode=explicit"}

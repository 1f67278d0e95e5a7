package entry

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SageMaker's directories for models.
const (
	singleModel = "/opt/ml/model"  // one repository, present at the start
	multiModel  = "/tmp/sagemaker" // empty: the platform loads models by requests
	gpuFolder   = "/proc/driver/nvidia/gpus"
	modelName   = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
	pingMode    = "SAGEMAKER_TRITON_PING_MODE"
	inference   = "SAGEMAKER_TRITON_INFERENCE_TYPE"
	modelLimit  = "SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT"
	otherModels = "SAGEMAKER_MULTI_MODEL"
	oldPingMode = "SAGEMAKER_TRITON_OVERRIDE_PING_MODE"
	moreFlags   = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
)

// variable is an environment variable that becomes a flag.
type variable struct {
	name   string
	flag   string // including everything before the value
	absent string // the value if the variable is empty; "" means no flag
}

// variables become flags with unchanged values.
var variables = []variable{
	{"SAGEMAKER_TRITON_DISABLE_MODEL_NAMESPACING", "--model-namespacing=", "true"},
	{"SAGEMAKER_BIND_TO_PORT", "--sagemaker-port=", ""},
	{"SAGEMAKER_SAFE_PORT_RANGE", "--sagemaker-safe-port-range=", ""},
	{"SAGEMAKER_TRITON_ALLOW_GRPC", "--allow-grpc=", "false"},
	{"SAGEMAKER_TRITON_ALLOW_METRICS", "--allow-metrics=", "false"},
	{"SAGEMAKER_TRITON_GRPC_PORT", "--grpc-port=", ""},
	{"SAGEMAKER_TRITON_METRICS_PORT", "--metrics-port=", ""},
	{"SAGEMAKER_TRITON_THREAD_COUNT", "--sagemaker-thread-count=", ""},
	{"SAGEMAKER_TRITON_BUFFER_MANAGER_THREAD_COUNT", "--buffer-manager-thread-count=", ""},
	{"SAGEMAKER_TRITON_LOG_VERBOSE", "--log-verbose=", "true"},
	{"SAGEMAKER_TRITON_LOG_INFO", "--log-info=", ""},
	{"SAGEMAKER_TRITON_LOG_WARNING", "--log-warning=", ""},
	{"SAGEMAKER_TRITON_LOG_ERROR", "--log-error=", ""},
	{"SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE", "--backend-config=python,shm-default-byte-size=", ""},
	{"SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE", "--backend-config=python,shm-growth-byte-size=", ""},
}

// inSageMaker reports whether the environment is SageMaker's.
func (m Machine) inSageMaker() bool {
	for _, v := range variables {
		if m.Getenv(v.name) != "" {
			return true
		}
	}
	return slices.ContainsFunc([]string{modelName, pingMode, oldPingMode, inference, modelLimit, otherModels, moreFlags},
		func(name string) bool { return m.Getenv(name) != "" })
}

// sageMaker returns the command line of a server that SageMaker has started. further are the
// arguments after `serve`.
func (m Machine) sageMaker(further []string) (Line, error) {
	line := Line{Program: triton, Settings: map[string]string{}, Args: []string{
		"--allow-sagemaker=true", "--allow-http=false", "--model-control-mode=explicit",
	}}
	switch kind := m.Getenv(inference); kind {
	case "", "infer", "generate", "generate_stream":
	default:
		return Line{}, fmt.Errorf("ERROR: Invalid %s '%s'", inference, kind)
	}
	for _, v := range variables {
		value := m.Getenv(v.name)
		if value == "" {
			value = v.absent
		}
		if value != "" {
			line.Args = append(line.Args, v.flag+value)
		}
	}
	if limit := m.Getenv(modelLimit); limit != "" {
		gpus, _ := os.ReadDir(m.Root + gpuFolder) // without a driver there is no limit to set
		for i := range gpus {
			line.Args = append(line.Args, fmt.Sprintf("--model-load-gpu-limit=%d:%s", i, limit))
		}
	}
	ping := m.Getenv(pingMode)
	if ping == "" {
		ping = m.Getenv(oldPingMode)
	}
	var err error
	if m.Getenv(otherModels) == "true" {
		if ping == "" {
			ping = "live"
		}
		err = m.manyModels(&line)
	} else {
		err = m.oneModel(&line)
	}
	if err != nil {
		return Line{}, err
	}
	if ping != "" {
		line.Settings[pingMode] = ping
	}
	line.Args = append(append(line.Args, strings.Fields(m.Getenv(moreFlags))...), further...)
	return line, nil
}

// manyModels configures an endpoint whose models the platform loads.
func (m Machine) manyModels(line *Line) error {
	repository := m.Root + multiModel
	if err := os.MkdirAll(repository, 0o755); err != nil {
		return fmt.Errorf("ERROR: create the repository for SageMaker's multi-model mode: %w; it must be writable", err)
	}
	line.Args = append(line.Args, "--model-repository="+repository)
	return nil
}

// oneModel configures an endpoint with the one model that the platform has provided.
func (m Machine) oneModel(line *Line) error {
	repository := m.Root + singleModel
	line.Args = append(line.Args, "--model-repository="+repository)
	if _, err := os.Stat(filepath.Join(repository, "config.pbtxt")); err == nil {
		return fmt.Errorf("ERROR: Incorrect directory structure. There is a config.pbtxt in %s; want it one directory deeper, in the model's directory", repository)
	}
	name := m.Getenv(modelName)
	if name == "" {
		line.Notes = append(line.Notes, "WARNING: No "+modelName+" provided.")
		entries, _ := os.ReadDir(repository) // an unreadable repository has no model either
		entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !isDirectory(filepath.Join(repository, e.Name())) })
		switch len(entries) {
		case 0:
			return fmt.Errorf("ERROR: No model found in model repository %s", repository)
		case 1:
			name = entries[0].Name()
			line.Settings[modelName] = name
		default:
			return fmt.Errorf("ERROR: More than 1 model directory found in model repository. %s names the one to serve of the %d in %s", modelName, len(entries), repository)
		}
	} else if !isDirectory(filepath.Join(repository, name)) {
		return fmt.Errorf("ERROR: Directory with provided %s %s does not exist", modelName, name)
	}
	line.Args = append(line.Args, "--load-model="+name)
	return nil
}

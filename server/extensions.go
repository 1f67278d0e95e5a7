package server

import "slices"

// extensions are the extensions in the server's metadata, in Triton's order.
var extensions = []string{"classification", "sequence", "model_repository", "model_repository(unload_dependents)",
	"schedule_policy", "model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters", "statistics", "trace", "logging"}

// Extensions lists the protocol extensions in the server's metadata.
func Extensions() []string { return slices.Clone(extensions) }

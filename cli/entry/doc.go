// Package entry derives the form of a command line from the program's name (argv[0]), its first
// argument and the environment that platforms set. Charts, KServe, SageMaker and Vertex AI start an
// image with different command lines. The binary understands all of them, so an image needs no
// shell.
//
//	name or first argument        form                                     Line
//	tritonserver                  tritonserver's command line              Args; no subcommand
//	serve                         SageMaker's start of a container         Args made of SAGEMAKER_…; Settings
//	nereid-entrypoint             the entry point of an image              one of the others, or Exec
//	nereid, any other name        the command nereid                       Args; Commands
//
// It parses no flags and starts no server; package cli does both with the Line, before it reads any
// flag. AwaitRoots implements MODEL_INIT_MODE=async.
package entry

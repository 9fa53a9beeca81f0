package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// version and commit are set by the linker: see the Makefile.
var (
	version = "unknown"
	commit  = "unknown"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and what it was built from",
		Long: `version prints the version alone on the first line, then the commit that it was built from,
the version of Go that built it, and the system and architecture that it is for.`,
		Args: usageArgs(cobra.NoArgs),
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "%s\ncommit %s\n%s %s/%s\n", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

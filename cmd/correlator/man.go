package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"correlator/internal/help"
)

// addMan adds the command that makes the manual pages of a release. It is hidden: who has a release
// has the pages.
func (a *app) addMan() {
	a.add(&cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, page := range help.Pages(a.root, version) {
				if err := writePage(filepath.Join(args[0], page.Name), page); err != nil {
					return err
				}
			}
			return nil
		},
	}, nil)
}

func writePage(path string, page help.Page) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("creating a manual page: %w", err)
	}
	if _, err := page.WriteTo(file); err != nil {
		file.Close()
		return fmt.Errorf("writing a manual page: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("writing a manual page: %w", err)
	}
	return nil
}

"""python -m fairhorizon"""

from fairhorizon.cli import main

main()

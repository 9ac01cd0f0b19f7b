"""For plugins that answer from a published measurement by themselves: the forms that measured spaces have."""

from dpdist.arrays import lapack
from dpdist.reconstruction.axis_factors import IdentityFactor
from dpdist.reconstruction.kronecker_terms import unit_direction
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.product_space import ProductSpace
from dpdist.reconstruction.row_space import RowSpace, SubsetRows
